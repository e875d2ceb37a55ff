{{- /* Made by `make manifests`; do not edit. */}}
{{- define "virt-admit.trusted" -}}
{{- if .Values.trustedNamespaces }}{{ join "|" .Values.trustedNamespaces }}
{{- else if eq .Values.certificates "openshift" }}openshift-cnv
{{- else }}kubevirt|kubevirt-hyperconverged|openshift-cnv
{{- end }}
{{- end }}
