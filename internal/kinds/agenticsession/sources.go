package agenticsession

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// maxVariableNameLength limits the names of variables from envFrom: a prefix and a key.
const maxVariableNameLength = 256

// findSource returns the entry of a Secret or ConfigMap in a list of a SessionRunner, or nil.
func findSource(allowed []v1alpha1.SessionSource, name string) *v1alpha1.SessionSource {
	i := slices.IndexFunc(allowed, func(source v1alpha1.SessionSource) bool { return source.Name == name })
	if i < 0 {
		return nil
	}
	return &allowed[i]
}

func (r *runnerSettings) checkSecretMounts(s *v1alpha1.AgenticSession) field.ErrorList {
	var errs field.ErrorList
	for i := range s.Spec.SecretMounts {
		name := s.Spec.SecretMounts[i].Name
		if findSource(r.runner.Spec.Allowed.Secrets, name) == nil {
			at := field.NewPath("spec", "secretMounts").Index(i).Child("name")
			errs = append(errs, field.Forbidden(at, "SessionRunner "+r.runner.Name+" does not allow Secret "+name+": add it to allowed.secrets of the SessionRunner"))
		}
	}
	return errs
}

// resolveEnvFrom expands the session's envFrom into a variable for each key that the SessionRunner lists, and rejects
// sources without listed keys. The envFrom of Kubernetes would also take keys that set reserved variables, and the
// operator does not read the Secrets and ConfigMaps of tenants.
func (r *runnerSettings) resolveEnvFrom(s *v1alpha1.AgenticSession) field.ErrorList {
	var errs field.ErrorList
	variables := map[string]corev1.EnvVar{}
	for i := range s.Spec.EnvFrom {
		source := newVariableSource(&s.Spec.EnvFrom[i], &r.runner.Spec)
		if source == nil {
			continue // Validate reports it
		}
		at := field.NewPath("spec", "envFrom").Index(i)
		if source.allowed == nil || len(source.allowed.Keys) == 0 {
			object, missing := source.kind+" "+source.name, ""
			if source.allowed == nil {
				missing = "does not allow " + object + ": add it, with the keys to use, to " + source.list
			} else {
				missing = "lists no keys of " + object + ", so it can only be mounted: use secretMounts, or add the keys to " + source.list
			}
			errs = append(errs, field.Forbidden(at.Child(source.field, "name"), "SessionRunner "+r.runner.Name+" "+missing+" of the SessionRunner"))
			continue
		}
		for _, key := range source.allowed.Keys {
			name := source.prefix + key
			if problem := r.validateVariableName(name); problem != "" {
				errs = append(errs, field.Forbidden(at, "key "+key+" of "+source.kind+" "+source.name+" sets the variable "+name+", "+problem+": set another prefix"))
				continue
			}
			variables[name] = corev1.EnvVar{Name: name, ValueFrom: source.valueFrom(key)} // the last source takes precedence, as in Kubernetes
		}
	}
	for _, name := range sortedKeys(variables) {
		r.envFrom = append(r.envFrom, variables[name])
	}
	return errs
}

// validateVariableName returns why a session cannot set a variable with this name; empty if it can.
func (r *runnerSettings) validateVariableName(name string) string {
	switch {
	case isReservedVariable(name):
		return "which is reserved"
	case len(name) > maxVariableNameLength || len(validation.IsEnvVarName(name)) > 0:
		return "which is not a valid name"
	case r.isExpandedInCommand(name):
		return "which would replace $(" + name + ") in the command of SessionRunner " + r.runner.Name
	}
	return ""
}

type variableSource struct {
	kind, name, prefix string
	// field is the entry's field that contains the name, and list the SessionRunner's list of allowed keys.
	field, list string
	// allowed is the object's entry in the list, or nil.
	allowed   *v1alpha1.SessionSource
	valueFrom func(key string) *corev1.EnvVarSource
}

// newVariableSource returns nil for an entry without an object.
func newVariableSource(from *corev1.EnvFromSource, runner *v1alpha1.SessionRunnerSpec) *variableSource {
	switch {
	case from.SecretRef != nil:
		ref := from.SecretRef
		return &variableSource{
			kind: "Secret", name: ref.Name, prefix: from.Prefix, field: "secretRef", list: "allowed.secrets",
			allowed: findSource(runner.Allowed.Secrets, ref.Name),
			valueFrom: func(key string) *corev1.EnvVarSource {
				return &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: ref.LocalObjectReference, Key: key, Optional: ref.Optional}}
			},
		}
	case from.ConfigMapRef != nil:
		ref := from.ConfigMapRef
		return &variableSource{
			kind: "ConfigMap", name: ref.Name, prefix: from.Prefix, field: "configMapRef", list: "allowed.configMaps",
			allowed: findSource(runner.Allowed.ConfigMaps, ref.Name),
			valueFrom: func(key string) *corev1.EnvVarSource {
				return &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: ref.LocalObjectReference, Key: key, Optional: ref.Optional}}
			},
		}
	}
	return nil
}
