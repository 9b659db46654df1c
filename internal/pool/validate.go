package pool

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// ValidateSpec tells what the API server's own rules cannot refuse.
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
		errs = append(errs, field.Forbidden(path.Child("ephemeralContainers"), "Pods are made without them"))
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

// specProblem tells what keeps the spec from being carried out; nil if nothing does.
func (d *evaluation) specProblem() *Problem {
	if errs := ValidateSpec(d.observation.Pool); len(errs) > 0 {
		return &Problem{v1alpha1.ReasonSpecInvalid, errs.ToAggregate().Error()}
	}
	if d.drain.Mode == v1alpha1.DrainSidecar && d.observation.Operator.Image == "" {
		return &Problem{
			v1alpha1.ReasonSpecInvalid,
			"drain.mode is Sidecar, and the operator was not told by which image its runtime is to be had: --worker-image",
		}
	}
	return nil
}

// workerImage of the container that works.
func (d *evaluation) workerImage() string {
	pod := corev1.PodSpec{}
	if d.observation.Pool.Spec.Template != nil {
		pod = *d.observation.Pool.Spec.Template.Spec.DeepCopy()
	}
	return d.workerContainer(&pod).Image
}
