package sessionrunner

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

const configMapKind = "ConfigMap"

// Reference is an object that the Pods of a SessionRunner's sessions need.
type Reference struct {
	Kind, Name string
	// Field of the SessionRunner that names the object.
	Field string
}

// References returns the objects that a SessionRunner needs, except Secrets: the operator does not read those of sessions. An
// optional volume needs no object. A name that no object can have is an error of the spec, not a reference.
func References(runner *v1alpha1.SessionRunner) []Reference {
	var references []Reference
	if template := runner.Spec.Template; template != nil {
		if name := template.Spec.ServiceAccountName; name != "" {
			references = append(references, Reference{"ServiceAccount", name, "spec.template.spec.serviceAccountName"})
		}
		for i := range template.Spec.Volumes {
			at := field.NewPath("spec", "template", "spec", "volumes").Index(i)
			switch volume := &template.Spec.Volumes[i]; {
			case volume.ConfigMap != nil && !ptr.Deref(volume.ConfigMap.Optional, false):
				references = append(references, Reference{configMapKind, volume.ConfigMap.Name, at.Child("configMap", "name").String()})
			case volume.PersistentVolumeClaim != nil:
				references = append(references, Reference{"PersistentVolumeClaim", volume.PersistentVolumeClaim.ClaimName, at.Child("persistentVolumeClaim", "claimName").String()})
			}
		}
		for _, list := range []struct {
			name       string
			containers []corev1.Container
		}{{"containers", template.Spec.Containers}, {"initContainers", template.Spec.InitContainers}} {
			for i := range list.containers {
				at := field.NewPath("spec", "template", "spec", list.name).Index(i)
				references = append(references, environmentReferences(&list.containers[i], at)...)
			}
		}
	}
	if bundle := runner.Spec.CABundle; bundle != nil {
		references = append(references, Reference{configMapKind, bundle.Name, "spec.caBundle.name"})
	}
	if model := runner.Spec.Model; model != nil && model.Prices != nil {
		references = append(references, Reference{configMapKind, model.Prices.Name, "spec.model.prices.name"})
	}
	if archive := runner.Spec.Archive; archive != nil && archive.ClaimRef != nil {
		references = append(references, Reference{"PersistentVolumeClaim", archive.ClaimRef.Name, "spec.archive.claimRef.name"})
	}
	return slices.DeleteFunc(references, func(r Reference) bool { return len(validation.IsDNS1123Subdomain(r.Name)) > 0 })
}

// environmentReferences returns the ConfigMaps without which a container does not start.
func environmentReferences(container *corev1.Container, at *field.Path) (references []Reference) {
	for i := range container.Env {
		if source := container.Env[i].ValueFrom; source != nil && source.ConfigMapKeyRef != nil && !ptr.Deref(source.ConfigMapKeyRef.Optional, false) {
			references = append(references, Reference{configMapKind, source.ConfigMapKeyRef.Name, at.Child("env").Index(i).Child("valueFrom", "configMapKeyRef", "name").String()})
		}
	}
	for i := range container.EnvFrom {
		if source := container.EnvFrom[i].ConfigMapRef; source != nil && !ptr.Deref(source.Optional, false) {
			references = append(references, Reference{configMapKind, source.Name, at.Child("envFrom").Index(i).Child("configMapRef", "name").String()})
		}
	}
	return references
}

// Observation is what the status of a SessionRunner is derived from.
type Observation struct {
	Runner *v1alpha1.SessionRunner
	Now    time.Time
	// Errors of the spec.
	Errors field.ErrorList
	// Missing are the objects of References that do not exist. An object that the operator may not read is not among them.
	Missing []Reference
	// Unprotected is why admission policies do not protect the users of sessions; empty if they do.
	Unprotected string
	// Proxy is the state of the namespace's egress proxy, and Address its address; empty if it has none.
	Proxy   decision.State
	Address string
}

var missingReasons = map[string]string{
	configMapKind:           v1alpha1.ReasonConfigMapNotFound,
	"PersistentVolumeClaim": v1alpha1.ReasonClaimNotFound,
	"ServiceAccount":        v1alpha1.ReasonServiceAccountNotFound,
}

// Decide returns the status of a SessionRunner. Only the first problem is in the conditions.
func Decide(o *Observation) v1alpha1.SessionRunnerStatus {
	status, now := *o.Runner.Status.DeepCopy(), metav1.NewTime(o.Now)
	status.ObservedGeneration = o.Runner.Generation
	hostErrors := ValidateRunner(o.Runner)
	switch {
	case !UsesProxy(o.Runner):
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionEgressProxyReady)
		status.EgressProxyAddress = ""
	case len(hostErrors) > 0:
		decision.SetState(&status.Conditions, o.Runner.Generation, now, v1alpha1.ConditionEgressProxyReady,
			decision.False(v1alpha1.ReasonHostsInvalid, hostErrors[0].Error()))
	default:
		decision.SetState(&status.Conditions, o.Runner.Generation, now, v1alpha1.ConditionEgressProxyReady, o.Proxy)
		if o.Address != "" {
			status.EgressProxyAddress = o.Address
		}
	}
	decision.Set(&status.Conditions, o.Runner.Generation, now, summarize(o))
	return status
}

func summarize(o *Observation) decision.Summary {
	switch {
	case len(o.Errors) > 0:
		return decision.Summary{Ready: metav1.ConditionFalse, Reason: v1alpha1.ReasonInvalid, Message: o.Errors.ToAggregate().Error(), Progress: decision.Stuck}
	case o.Unprotected != "":
		return decision.Summary{Ready: metav1.ConditionFalse, Reason: v1alpha1.ReasonUnprotected, Message: o.Unprotected, Progress: decision.InProgress}
	case len(o.Missing) > 0:
		missing := o.Missing[0]
		return decision.Summary{
			Ready: metav1.ConditionFalse, Reason: missingReasons[missing.Kind], Progress: decision.InProgress,
			Message: missing.Kind + " " + missing.Name + " of " + missing.Field + " does not exist",
		}
	case !UsesProxy(o.Runner) || o.Proxy.Status == metav1.ConditionTrue:
		return decision.Summary{Ready: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady}
	}
	progress := decision.Stuck
	if o.Proxy.Reason == v1alpha1.ReasonEgressProxyStarting {
		progress = decision.InProgress
	}
	return decision.Summary{Ready: metav1.ConditionFalse, Reason: o.Proxy.Reason, Message: o.Proxy.Message, Progress: progress}
}
