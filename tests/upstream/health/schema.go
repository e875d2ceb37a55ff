package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	v1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

// validator is the part of a custom resource's strategy that decides on a new object.
type validator interface {
	Validate(ctx context.Context, obj runtime.Object) field.ErrorList
}

type definition struct {
	structural *structuralschema.Structural
	strategy   validator
}

type definitions map[schema.GroupVersionKind]definition

func load(folder string) (definitions, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return nil, err
	}
	found := definitions{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		crd := &v1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(content, crd); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, version := range crd.Spec.Versions {
			gvk := schema.GroupVersionKind{Group: crd.Spec.Group, Version: version.Name, Kind: crd.Spec.Names.Kind}
			if found[gvk], err = define(gvk, crd.Spec.Scope == v1.NamespaceScoped, version.Schema); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	return found, nil
}

// define builds what the API server builds from a version of a CustomResourceDefinition
// (k8s.io/apiextensions-apiserver: pkg/apiserver/customresource_handler.go#getOrCreateServingInfoFor).
func define(gvk schema.GroupVersionKind, namespaced bool, given *v1.CustomResourceValidation) (definition, error) {
	internal := &apiextensions.CustomResourceValidation{}
	if err := v1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(given, internal, nil); err != nil {
		return definition{}, err
	}
	structural, err := structuralschema.NewStructural(internal.OpenAPIV3Schema)
	if err != nil {
		return definition{}, err
	}
	schemaValidator, _, err := validation.NewSchemaValidator(internal.OpenAPIV3Schema)
	if err != nil {
		return definition{}, err
	}
	strategy := customresource.NewStrategy(nil, namespaced, gvk, schemaValidator, nil, structural, nil, nil, nil)
	return definition{structural, strategy}, nil
}

// create prunes and defaults an object in place and returns why the API server refuses it.
func (d definitions) create(obj *unstructured.Unstructured) []string {
	kind, known := d[obj.GroupVersionKind()]
	if !known {
		return []string{fmt.Sprintf("no definition of %s", obj.GroupVersionKind())}
	}
	pruning.PruneWithOptions(obj.Object, kind.structural, true, structuralschema.UnknownFieldPathOptions{})
	defaulting.PruneNonNullableNullsWithoutDefaults(obj.Object, kind.structural)
	if err := objectmeta.Coerce(nil, obj.Object, kind.structural, false, false); err != nil {
		return []string{err.Error()}
	}
	defaulting.Default(obj.Object, kind.structural)
	return texts(kind.strategy.Validate(context.Background(), obj))
}

func texts(errors field.ErrorList) []string {
	found := []string{}
	for _, err := range errors {
		found = append(found, err.Error())
	}
	return found
}

// selected returns the objects of the cluster that spec.selector matches, as every controller of health checks does.
func selected(obj *unstructured.Unstructured, cluster []map[string]any) (string, []string) {
	field, _, err := unstructured.NestedMap(obj.Object, "spec", "selector")
	if err != nil {
		return err.Error(), nil
	}
	parsed := &metav1.LabelSelector{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(field, parsed); err != nil {
		return err.Error(), nil
	}
	selector, err := metav1.LabelSelectorAsSelector(parsed)
	if err != nil {
		return err.Error(), nil
	}
	names := []string{}
	for _, each := range cluster {
		candidate := unstructured.Unstructured{Object: each}
		target := candidate.GetKind() == "Machine"
		if obj.GetKind() == "NodeHealthCheck" {
			target = candidate.GetKind() == "Node"
		}
		if target && selector.Matches(labels.Set(candidate.GetLabels())) {
			names = append(names, candidate.GetName())
		}
	}
	return "", names
}
