package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// writeReference writes a page for each kind to a directory: its fields in the order of the Go types, and the shortest example
// of the kind below a directory of manifests.
func writeReference(scheme *runtime.Scheme, crds []*apiextensionsv1.CustomResourceDefinition, examples, dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // a tracked directory, readable like the others
		return err
	}
	shortest, err := shortestExamples(examples)
	if err != nil {
		return err
	}
	index := &bytes.Buffer{}
	fmt.Fprintf(index, "# API reference\n\nThe kinds of `%s`, field by field:\n\n", v1alpha1.GroupVersion)
	for _, crd := range crds {
		version, names := &crd.Spec.Versions[0], &crd.Spec.Names
		gvk := schema.GroupVersionKind{Group: crd.Spec.Group, Version: version.Name, Kind: names.Kind}
		kind, err := goTypeOf(scheme, gvk)
		if err != nil {
			return err
		}
		page := renderReference(names, version, kind, shortest[names.Kind])
		if err := os.WriteFile(filepath.Join(dir, names.Singular+".md"), page, 0o644); err != nil { //nolint:gosec // as above
			return err
		}
		fmt.Fprintf(index, "- [%s](%s.md): %s\n", names.Kind, names.Singular, lowerFirst(firstSentence(afterName(version.Schema.OpenAPIV3Schema.Description))))
	}
	return os.WriteFile(filepath.Join(dir, "README.md"), index.Bytes(), 0o644) //nolint:gosec // as above
}

// renderReference returns the page of a kind.
func renderReference(
	names *apiextensionsv1.CustomResourceDefinitionNames, version *apiextensionsv1.CustomResourceDefinitionVersion, kind reflect.Type, example string,
) []byte {
	page, root := &bytes.Buffer{}, version.Schema.OpenAPIV3Schema
	fmt.Fprintf(page, "# %s\n\n%s\n\n", names.Kind, root.Description)
	if len(names.ShortNames) > 0 {
		fmt.Fprintf(page, "`kubectl get %s`, or `kubectl get %s`. ", names.Plural, strings.Join(names.ShortNames, "`, `kubectl get "))
	}
	fmt.Fprintf(page, "Fields of Kubernetes' own types are described by `kubectl explain %s` and in its reference.\n", names.Singular)
	if example != "" {
		fmt.Fprintf(page, "\n```yaml\n%s\n```\n", example)
	}
	described := map[reflect.Type]string{}
	for _, part := range []string{"spec", "status"} {
		field, found := structFields(kind)[part]
		if !found {
			continue
		}
		partSchema := root.Properties[part]
		fmt.Fprintf(page, "\n## %s\n\n%s\n\n| Field | Type | Description |\n|---|---|---|\n", part, partSchema.Description)
		writeFields(page, described, "", &partSchema, dereference(field.Type))
		for _, rule := range partSchema.XValidations {
			fmt.Fprintf(page, "\n- %s", rule.Message)
		}
		if len(partSchema.XValidations) > 0 {
			page.WriteString("\n")
		}
	}
	return page.Bytes()
}

// writeFields writes a row for each field of a struct of Yardmaster, and after it those of the fields inside. The fields of a type
// are described at the first field that has it.
func writeFields(page *bytes.Buffer, described map[reflect.Type]string, path string, s *apiextensionsv1.JSONSchemaProps, t reflect.Type) {
	for t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = elementType(t)
	}
	if t.Kind() != reflect.Struct || isForeignType(t) || len(s.Properties) == 0 {
		return
	}
	if first, found := described[t]; found {
		fmt.Fprintf(page, "| `%s…` | | As those of `%s`. |\n", path, first)
		return
	}
	if len(s.Properties) > 1 {
		described[t] = strings.TrimSuffix(path, ".")
	}
	fields := structFields(t)
	for _, name := range fieldOrder(t) {
		property, found := s.Properties[name]
		if !found || fields[name].inherited {
			continue
		}
		required := ""
		if slices.Contains(s.Required, name) {
			required = " (required)"
		}
		fmt.Fprintf(page, "| `%s`%s | %s | %s |\n", path+name, required, typeName(&property, fields[name].Type), cell(&property, name))
		inner, suffix := &property, "."
		for inner.Items != nil || inner.AdditionalProperties != nil {
			if suffix = "[]."; inner.AdditionalProperties != nil {
				inner, suffix = inner.AdditionalProperties.Schema, ".<key>."
				continue
			}
			inner = inner.Items.Schema
		}
		writeFields(page, described, path+name+suffix, inner, dereference(fields[name].Type))
	}
	for _, name := range inlinedTypes(t) {
		fmt.Fprintf(page, "| `%s…` | | The fields of %s. |\n", path, name)
	}
}

// fieldOrder returns the names of the properties of a struct in the order of its Go type.
func fieldOrder(t reflect.Type) (order []string) {
	for f := range t.Fields() {
		name, inline := jsonName(f)
		names := []string{name}
		if inline {
			names = fieldOrder(dereference(f.Type))
		}
		for _, name := range names {
			if !slices.Contains(order, name) {
				order = append(order, name)
			}
		}
	}
	return order
}

// inlinedTypes returns the types of Kubernetes that a struct inlines.
func inlinedTypes(t reflect.Type) (names []string) {
	for f := range t.Fields() {
		if _, inline := jsonName(f); inline && isForeignType(dereference(f.Type)) && dereference(f.Type).Kind() == reflect.Struct {
			names = append(names, kubernetesType(dereference(f.Type)))
		}
	}
	return names
}

// typeName returns the type of a field in the terms of the API.
func typeName(s *apiextensionsv1.JSONSchemaProps, t reflect.Type) string {
	t = dereference(t)
	switch {
	case t == reflect.TypeFor[v1alpha1.Duration]():
		return "duration"
	case len(s.Enum) > 0:
		values := make([]string, len(s.Enum))
		for i, value := range s.Enum {
			values[i] = "`" + strings.Trim(string(value.Raw), `"`) + "`"
		}
		return strings.Join(values, ", ")
	case s.Items != nil:
		return "list of " + typeName(s.Items.Schema, elementType(t))
	case s.AdditionalProperties != nil:
		return "map of " + typeName(s.AdditionalProperties.Schema, elementType(t))
	case s.Format == "date-time":
		return "time"
	case s.XIntOrString && t.Name() == "Quantity":
		return "quantity"
	case s.XIntOrString:
		return "integer or string"
	case isForeignType(t) && t.Kind() == reflect.Struct && t.Name() != "Duration":
		return kubernetesType(t)
	}
	return s.Type
}

// kubernetesType returns the name of a type of Kubernetes with the group and version of its package.
func kubernetesType(t reflect.Type) string {
	path := strings.Split(t.PkgPath(), "/")
	return strings.Join(path[max(0, len(path)-2):], "/") + " " + t.Name()
}

// cell returns a description for a cell of a table, with the default if the description does not say it.
func cell(s *apiextensionsv1.JSONSchemaProps, name string) string {
	text := strings.Join(strings.Fields(s.Description), " ")
	if s.Default != nil && !strings.Contains(text, "efault") && string(s.Default.Raw) != "{}" {
		text += " Defaults to " + strings.Trim(string(s.Default.Raw), `"`) + "."
	}
	for _, verb := range []string{" is ", " are "} {
		if rest, found := strings.CutPrefix(text, name+verb); found {
			text = upperFirst(rest)
		}
	}
	return strings.NewReplacer("|", "\\|", "<", "&lt;", "{{", "{ {").Replace(text)
}

// afterName returns the predicate of a description that begins with the name of a kind.
func afterName(description string) string {
	_, rest, _ := strings.Cut(description, " ")
	return strings.TrimPrefix(rest, "is ")
}

func upperFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

func lowerFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToLower(s[:1]) + s[1:]
}

var documentSeparator = regexp.MustCompile(`(?m)^---\s*$`)

// shortestExamples returns the shortest manifest of each kind below a directory, without comments at its beginning.
func shortestExamples(dir string) (map[string]string, error) {
	shortest := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		raw, err := os.ReadFile(path) //nolint:gosec // a file of this repository
		if err != nil {
			return err
		}
		for _, document := range documentSeparator.Split(string(raw), -1) {
			var object struct{ APIVersion, Kind string }
			if yaml.Unmarshal([]byte(document), &object) != nil || object.APIVersion != v1alpha1.GroupVersion.String() {
				continue
			}
			_, document, _ = strings.Cut("\n"+document, "\napiVersion:")
			document = "apiVersion:" + strings.TrimRight(document, "\n")
			if known := shortest[object.Kind]; known == "" || len(document) < len(known) {
				shortest[object.Kind] = document
			}
		}
		return nil
	})
	return shortest, err
}
