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

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// descriptionOrigin says who wrote a description, and so how much of it remains.
type descriptionOrigin int

const (
	// originYardmaster keeps the description.
	originYardmaster descriptionOrigin = iota
	// originInherited keeps the first sentence: the field is one of Yardmaster's type, from an inlined one of Kubernetes.
	originInherited
	// originKubernetes keeps nothing: the field is below a value of a type of Kubernetes.
	originKubernetes
)

// shorten returns what remains of a description.
func (o descriptionOrigin) shorten(description string) string {
	switch o {
	case originInherited:
		return firstSentence(description)
	case originKubernetes:
		return ""
	default:
		return description
	}
}

// nested returns the origin of descriptions below.
func (o descriptionOrigin) nested() descriptionOrigin {
	if o == originYardmaster {
		return originYardmaster
	}
	return originKubernetes
}

// effectiveTypes are those of status.effective. Their fields are those of spec, which has their descriptions.
var effectiveTypes = []reflect.Type{reflect.TypeFor[v1alpha1.QueueEffective](), reflect.TypeFor[v1alpha1.WorkerPoolEffective]()}

// schemaWalker walks a schema together with the Go type that it was generated from.
type schemaWalker struct {
	problems []error
}

func (w *schemaWalker) walkSchema(path string, s *apiextensionsv1.JSONSchemaProps, t reflect.Type, origin descriptionOrigin) {
	s.Description = origin.shorten(s.Description)
	if t != nil && dereference(t) == reflect.TypeFor[v1alpha1.Duration]() {
		mergeDurationRules(s)
	}
	if origin == originKubernetes {
		removeDefaults(s)
	}
	if s.XIntOrString {
		s.AnyOf = nil // the API server adds that it is an integer or a string
	}
	if s.Pattern == quantityPattern {
		s.Pattern = shortQuantityPattern
	}
	origin = origin.nested()
	if t != nil && slices.Contains(effectiveTypes, dereference(t)) {
		origin = originInherited
		removeLimits(s)
	}
	switch {
	case s.Items != nil && s.Items.Schema != nil:
		w.walkSchema(path+"[]", s.Items.Schema, elementType(t), originOfField(elementType(t), origin))
		requireKeys(s)
	case s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
		w.walkSchema(path+"{}", s.AdditionalProperties.Schema, elementType(t), originOfField(elementType(t), origin))
	case len(s.Properties) > 0:
		w.walkStructFields(path, s, dereference(t), originOfField(t, origin))
	}
}

// removeDefaults removes what says nothing: that a list is atomic, and that a text is empty. It also removes that a reference or
// selector is atomic, which matters only to two clients that apply parts of the same one.
func removeDefaults(s *apiextensionsv1.JSONSchemaProps) {
	if s.XListType != nil && *s.XListType == "atomic" {
		s.XListType = nil
	}
	if s.Default != nil && string(s.Default.Raw) == `""` {
		s.Default = nil
	}
	s.XMapType = nil
}

// requireKeys requires the keys of a list that have no default, as the API server does.
func requireKeys(s *apiextensionsv1.JSONSchemaProps) {
	for _, key := range s.XListMapKeys {
		if s.Items.Schema.Properties[key].Default == nil && !slices.Contains(s.Items.Schema.Required, key) {
			s.Items.Schema.Required = append(s.Items.Schema.Required, key)
		}
	}
}

// removeLimits removes the limits of values that the operator copies from a spec, which has them. A duration keeps its rule, because
// every client must be able to decode it.
func removeLimits(s *apiextensionsv1.JSONSchemaProps) {
	if s.Type == "object" || len(s.XValidations) == 0 {
		s.XValidations, s.Pattern = nil, ""
		s.MinLength, s.MaxLength, s.Minimum, s.Maximum, s.MinItems, s.MaxProperties = nil, nil, nil, nil, nil, nil
	}
	for name, property := range s.Properties {
		removeLimits(&property)
		s.Properties[name] = property
	}
	if s.Items != nil && s.Items.Schema != nil {
		removeLimits(s.Items.Schema)
	}
}

// quantityPattern is the pattern of each quantity, and shortQuantityPattern matches the same texts.
const (
	quantityPattern      = `^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$`
	shortQuantityPattern = `^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?([0-9]+[.]?[0-9]*|[.][0-9]+))?$`
)

// mergeDurationRules puts the rule of the type Duration before the other rules of a field. Otherwise a text that is no duration
// would get a second message from each: the evaluation of duration(self) fails.
func mergeDurationRules(s *apiextensionsv1.JSONSchemaProps) {
	last := len(s.XValidations) - 1 // controller-gen writes the rules of the type after those of the field
	if last < 1 {
		return
	}
	isDuration := s.XValidations[last].Rule
	s.XValidations = s.XValidations[:last]
	for i := range s.XValidations {
		s.XValidations[i].Rule = isDuration + " && " + s.XValidations[i].Rule
	}
}

// unusableFields are fields of Kubernetes types that no Pod which Yardmaster creates can use: they are not in the schemas, so a
// strict client such as kubectl refuses them at once, and the manifests are a tenth smaller.
var unusableFields = map[reflect.Type][]string{
	// The API server refuses them in a Pod template or in a Pod that is created, unless they have the value that it sets itself.
	reflect.TypeFor[corev1.PodSpec](): {"ephemeralContainers", "overhead", "priority"},
	// Types of volumes that Kubernetes no longer supports, by the documentation of the API. Types that are deprecated and still
	// work, for example through a CSI driver, remain.
	reflect.TypeFor[corev1.Volume](): {
		"cephfs", "flocker", "glusterfs", "photonPersistentDisk", "quobyte", "rbd", "scaleIO", "storageos",
	},
}

func (w *schemaWalker) walkStructFields(path string, s *apiextensionsv1.JSONSchemaProps, t reflect.Type, origin descriptionOrigin) {
	for _, name := range unusableFields[t] {
		delete(s.Properties, name)
	}
	if t == reflect.TypeFor[corev1.PodSpec]() {
		// A Pod template has no container, or one with defaults: the containers that run
		// are elsewhere in the object.
		s.Required = slices.DeleteFunc(s.Required, func(name string) bool { return name == "containers" })
	}
	fields := structFields(t)
	for name, property := range s.Properties {
		field, found := fields[name]
		if !found {
			w.problems = append(w.problems, fmt.Errorf("%s.%s: no such field in %s", path, name, t))
			continue
		}
		if origin == originYardmaster && field.overrides && !hasLimits(&property) {
			w.problems = append(w.problems, fmt.Errorf(
				"%s.%s: the limits that its override in %s sets are lost", path, name, t))
		}
		fieldOrigin := origin
		if field.inherited || field.overrides {
			// controller-gen gives an override the description of the field that it hides.
			fieldOrigin = max(origin, originInherited)
		}
		w.walkSchema(path+"."+name, &property, field.Type, fieldOrigin)
		s.Properties[name] = property
	}
}

// originOfField returns the origin of the descriptions inside a value of type t.
func originOfField(t reflect.Type, origin descriptionOrigin) descriptionOrigin {
	if isForeignType(dereference(t)) {
		return originKubernetes
	}
	return origin
}

// hasLimits reports whether a string that overrides an embedded type's still has Yardmaster's
// limits: controller-gen merges both and could keep the wider ones.
func hasLimits(s *apiextensionsv1.JSONSchemaProps) bool {
	return s.Type != "string" || (s.MinLength != nil && s.MaxLength != nil && s.Pattern != "")
}

// structField is one JSON property of a struct.
type structField struct {
	reflect.StructField
	// inherited: the field comes from an inlined Kubernetes type.
	inherited bool
	// overrides: the field hides one of the same name in an inlined type.
	overrides bool
}

// structFields returns the properties of a struct by JSON name, including those of inlined structs.
func structFields(t reflect.Type) map[string]structField {
	fields := map[string]structField{}
	if t.Kind() != reflect.Struct {
		return fields
	}
	own := map[string]structField{}
	for f := range t.Fields() {
		name, inline := jsonName(f)
		if !inline {
			own[name] = structField{StructField: f}
			continue
		}
		inlined := dereference(f.Type)
		for name, inner := range structFields(inlined) {
			inner.inherited = inner.inherited || isForeignType(inlined)
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

// isForeignType reports whether a type belongs to Kubernetes.
func isForeignType(t reflect.Type) bool {
	return strings.HasPrefix(t.PkgPath(), "k8s.io/")
}

func dereference(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// elementType returns the type of the values of a list or map.
func elementType(t reflect.Type) reflect.Type {
	return dereference(t).Elem()
}

// sentencePattern matches up to a full stop before a capital letter, so that "e.g." does not end it.
var sentencePattern = regexp.MustCompile(`^.*?\.(?: [A-Z]|$)`)

// firstSentence returns the first sentence of a description on one line.
func firstSentence(description string) string {
	paragraph, _, _ := strings.Cut(description, "\n\n")
	line := strings.Join(strings.Fields(paragraph), " ")
	first := sentencePattern.FindString(line)
	if first == "" {
		return line
	}
	return first[:strings.LastIndex(first, ".")+1]
}

// goTypeOf returns the Go struct of a kind.
func goTypeOf(scheme *runtime.Scheme, gvk schema.GroupVersionKind) (reflect.Type, error) {
	object, err := scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	return dereference(reflect.TypeOf(object)), nil
}
