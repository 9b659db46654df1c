// Command crd completes the CustomResourceDefinitions that controller-gen writes.
//
// Yardmaster's kinds embed Kubernetes types such as a container or a Pod template, and controller-gen
// copies their schemas unchanged. This program removes their descriptions, because the manifests would
// otherwise be too large for client-side apply, fields that no Pod can use, requirements of a Pod that a
// Pod template does not have, and all fields outside of the lists in keep.go. Fields that a kind inherits
// directly keep the first sentence. It finds embedded types through the Go types, so new fields and kinds
// need no change here.
//
// It also writes the reference of the API: a page for each kind, and a table of the conditions.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: crd <directory of CRD manifests> <directory of examples> <directory of the reference>")
		os.Exit(2)
	}
	if err := processDirectory(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "crd:", err)
		os.Exit(1)
	}
}

func processDirectory(dir, examples, reference string) error {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return err
	}
	manifests, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return err
	}
	if len(manifests) == 0 {
		return fmt.Errorf("no manifest in %s", dir)
	}
	var crds []*apiextensionsv1.CustomResourceDefinition
	for _, path := range manifests {
		crd, err := finishManifest(scheme, path)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		crds = append(crds, crd)
	}
	if err := writeReference(scheme, crds, examples, reference); err != nil {
		return err
	}
	var kinds []string
	for _, crd := range crds {
		kinds = append(kinds, crd.Spec.Names.Kind)
	}
	return writeConditions("api/v1alpha1", filepath.Join(reference, "..", "conditions.md"), kinds)
}

// finishManifest rewrites the manifest at path.
func finishManifest(scheme *runtime.Scheme, path string) (*apiextensionsv1.CustomResourceDefinition, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(raw, crd); err != nil {
		return nil, err
	}
	var problems []error
	for i := range crd.Spec.Versions {
		version := &crd.Spec.Versions[i]
		kind, err := goTypeOf(scheme, schema.GroupVersionKind{
			Group: crd.Spec.Group, Version: version.Name, Kind: crd.Spec.Names.Kind,
		})
		if err != nil {
			return nil, err
		}
		if err := selectFields(crd.Spec.Names.Kind, version.Schema.OpenAPIV3Schema); err != nil {
			return nil, err
		}
		w := schemaWalker{}
		w.walkSchema(crd.Spec.Names.Kind, version.Schema.OpenAPIV3Schema, kind, originYardmaster)
		problems = append(problems, w.problems...)
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	out, err := renderManifest(crd)
	if err != nil {
		return nil, err
	}
	return crd, os.WriteFile(path, out, 0o644) //nolint:gosec // a tracked file, readable like the others
}

// renderManifest returns the CRD as YAML, without the status that its Go type always has.
func renderManifest(crd *apiextensionsv1.CustomResourceDefinition) ([]byte, error) {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(crd)
	if err != nil {
		return nil, err
	}
	delete(object, "status")
	out, err := yaml.Marshal(object)
	if err != nil {
		return nil, err
	}
	return append([]byte("---\n"), out...), nil
}
