package main

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// origin says whose words a description is.
type origin bool

const (
	ours     origin = false
	upstream origin = true
)

// walker goes through a schema beside the Go type it was generated from.
type walker struct {
	problems []error
}

func (w *walker) walk(path string, s *apiextensionsv1.JSONSchemaProps, t reflect.Type, words origin) {
	if words == upstream {
		s.Description = firstSentence(s.Description)
	}
	switch {
	case s.Items != nil && s.Items.Schema != nil:
		w.walk(path+"[]", s.Items.Schema, element(t), inside(element(t), words))
	case s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
		w.walk(path+"{}", s.AdditionalProperties.Schema, element(t), inside(element(t), words))
	case len(s.Properties) > 0:
		w.walkStruct(path, s, indirect(t), inside(t, words))
	}
}

func (w *walker) walkStruct(path string, s *apiextensionsv1.JSONSchemaProps, t reflect.Type, words origin) {
	if t == reflect.TypeFor[corev1.PodSpec]() {
		// A template for Pods holds no container, or one with defaults: those that
		// run come from elsewhere in the object.
		s.Required = slices.DeleteFunc(s.Required, func(name string) bool { return name == "containers" })
	}
	fields := fieldsOf(t)
	for name, property := range s.Properties {
		field, found := fields[name]
		if !found {
			w.problems = append(w.problems, fmt.Errorf("%s.%s: no such field in %s", path, name, t))
			continue
		}
		if words == ours && field.overrides && !limited(&property) {
			w.problems = append(w.problems, fmt.Errorf(
				"%s.%s: the limits that its override in %s sets are lost", path, name, t))
		}
		fieldWords := words
		if field.inherited || field.overrides {
			// controller-gen gives an override the words of what it hides.
			fieldWords = upstream
		}
		w.walk(path+"."+name, &property, field.Type, fieldWords)
		s.Properties[name] = property
	}
}

// inside says whose words stand inside a value of type t.
func inside(t reflect.Type, words origin) origin {
	if foreign(indirect(t)) {
		return upstream
	}
	return words
}

// limited tells whether a string that we redeclare over an embedded type's still has
// our limits: controller-gen merges the two, and could let the wider one win.
func limited(s *apiextensionsv1.JSONSchemaProps) bool {
	return s.Type != "string" || (s.MinLength != nil && s.MaxLength != nil && s.Pattern != "")
}

// field is one JSON property of a struct.
type field struct {
	reflect.StructField
	// inherited: the field comes from an inlined Kubernetes type.
	inherited bool
	// overrides: the field hides one of the same name in an inlined type.
	overrides bool
}

// fieldsOf lists a struct's properties by JSON name, those of inlined structs too.
func fieldsOf(t reflect.Type) map[string]field {
	fields := map[string]field{}
	if t.Kind() != reflect.Struct {
		return fields
	}
	own := map[string]field{}
	for f := range t.Fields() {
		name, inline := jsonName(f)
		if !inline {
			own[name] = field{StructField: f}
			continue
		}
		inlined := indirect(f.Type)
		for name, inner := range fieldsOf(inlined) {
			inner.inherited = inner.inherited || foreign(inlined)
			fields[name] = inner
		}
	}
	for name, f := range own {
		_, f.overrides = fields[name]
		fields[name] = f
	}
	return fields
}

func jsonName(f reflect.StructField) (name string, inline bool) {
	name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name, f.Anonymous && (name == "" || strings.Contains(options, "inline"))
}

// foreign tells whether a type belongs to Kubernetes.
func foreign(t reflect.Type) bool {
	return strings.HasPrefix(t.PkgPath(), "k8s.io/")
}

func indirect(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// element is the type of a list's or map's values.
func element(t reflect.Type) reflect.Type {
	return indirect(t).Elem()
}

// sentence is a text up to a full stop before a capital, so that "e.g." ends nothing.
var sentence = regexp.MustCompile(`^.*?\.(?: [A-Z]|$)`)

// firstSentence cuts a description after its first sentence, on one line.
func firstSentence(description string) string {
	paragraph, _, _ := strings.Cut(description, "\n\n")
	line := strings.Join(strings.Fields(paragraph), " ")
	first := sentence.FindString(line)
	if first == "" {
		return line
	}
	return first[:strings.LastIndex(first, ".")+1]
}

// goType is the Go struct of a kind.
func goType(scheme *runtime.Scheme, gvk schema.GroupVersionKind) (reflect.Type, error) {
	object, err := scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	return indirect(reflect.TypeOf(object)), nil
}
