package workerpool

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/policy"
)

// findProblem returns the first problem that prevents the pool from doing what its spec says; nil if it has none.
func findProblem(observation *Observation, mode v1alpha1.DrainMode) *decision.Problem {
	if errs := ValidateSpec(observation.Pool); len(errs) > 0 {
		return &decision.Problem{Reason: v1alpha1.ReasonSpecInvalid, Message: errs.ToAggregate().Error()}
	}
	if mode == v1alpha1.DrainSidecar && observation.Operator.Image == "" {
		return &decision.Problem{
			Reason:  v1alpha1.ReasonSpecInvalid,
			Message: "drain.mode is Sidecar, but the operator has no image for the sidecar: set the operator's flag --worker-image",
		}
	}
	pod := cmp.Or(observation.Pool.Spec.Template, &corev1.PodTemplateSpec{}).DeepCopy().Spec
	(&workloadBuilder{pool: observation.Pool}).workerContainer(&pod)
	if err := policy.CheckImages(&pod, &observation.Policies); err != nil {
		return &decision.Problem{Reason: v1alpha1.ReasonSpecInvalid, Message: err.Error()}
	}
	return observation.Problem
}

// ValidateSpec returns the errors of a spec that the CRD's validation rules cannot express.
func ValidateSpec(wp *v1alpha1.WorkerPool) field.ErrorList {
	spec := &wp.Spec
	if spec.Template == nil {
		return nil
	}
	path := field.NewPath("spec", "template", "spec")
	errs := validateContainers(path.Child("initContainers"), spec.Template.Spec.InitContainers)
	errs = append(errs, validateContainers(path.Child("containers"), spec.Template.Spec.Containers)...)
	for i, volume := range spec.Template.Spec.Volumes {
		if strings.HasPrefix(volume.Name, SidecarContainer+"-") {
			errs = append(errs, field.Invalid(path.Child("volumes").Index(i).Child("name"), volume.Name,
				"names that begin with yardmaster- are reserved"))
		}
	}
	if len(spec.Template.Spec.EphemeralContainers) > 0 {
		errs = append(errs, field.Forbidden(path.Child("ephemeralContainers"), "a Pod cannot be created with ephemeral containers"))
	}
	return errs
}

func validateContainers(path *field.Path, containers []corev1.Container) field.ErrorList {
	var errs field.ErrorList
	for i := range containers {
		c := &containers[i]
		if c.Name == SidecarContainer {
			errs = append(errs, field.Invalid(path.Index(i).Child("name"), c.Name, "is reserved"))
		}
		for j, variable := range c.Env {
			if strings.HasPrefix(variable.Name, v1alpha1.WorkerEnvPrefix) {
				errs = append(errs, field.Invalid(path.Index(i).Child("env").Index(j).Child("name"), variable.Name,
					"names that begin with "+v1alpha1.WorkerEnvPrefix+" are reserved"))
			}
		}
	}
	return errs
}
