{{- /* The labels of a pod template. Argument: the root and the component. */}}
{{- define "virt-admit.podLabels" -}}
app.kubernetes.io/component: {{ index . 1 }}
app.kubernetes.io/instance: virt-admit
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
app.kubernetes.io/name: virt-admit
app.kubernetes.io/part-of: virt-admit
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
{{- end }}

{{- /* The labels of an object. Argument: the root and the component. */}}
{{- define "virt-admit.labels" -}}
{{ include "virt-admit.podLabels" . }}
helm.sh/chart: {{ printf "%s-%s" (index . 0).Chart.Name (index . 0).Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* The image. A repository without a registry stays as it is, like the placeholder of the manifests. */}}
{{- define "virt-admit.image" -}}
{{- with .Values.image }}
{{- $tag := .tag | default (contains "/" .repository | ternary $.Chart.AppVersion "") }}
{{- if .digest }}{{ .repository }}@{{ .digest }}
{{- else if $tag }}{{ .repository }}:{{ $tag }}
{{- else }}{{ .repository }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The address of the folder docs, inside single quotes of YAML. */}}
{{- define "virt-admit.docsUrl" -}}
{{ trimSuffix "/" .Values.monitoring.docsUrl | replace "'" "''" }}
{{- end }}
