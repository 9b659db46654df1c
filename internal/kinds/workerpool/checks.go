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

// problemChecks are the checks of what prevents a pool from doing what its spec says. The first
// problem found is reported.
var problemChecks = []func(*Observation, v1alpha1.DrainMode) (reason, message string, found bool){
	checkSpec, checkSidecarImage, checkAllowedImages, checkObservedProblem,
}

// findProblem returns the first problem of the pool; nil if it has none.
func findProblem(observation *Observation, mode v1alpha1.DrainMode) *decision.Problem {
	for _, check := range problemChecks {
		if reason, message, found := check(observation, mode); found {
			return &decision.Problem{Reason: reason, Message: message}
		}
	}
	return nil
}

func checkSpec(observation *Observation, _ v1alpha1.DrainMode) (reason, message string, found bool) {
	errs := ValidateSpec(observation.Pool)
	if len(errs) == 0 {
		return "", "", false
	}
	return v1alpha1.ReasonSpecInvalid, errs.ToAggregate().Error(), true
}

func checkSidecarImage(observation *Observation, mode v1alpha1.DrainMode) (reason, message string, found bool) {
	return v1alpha1.ReasonSpecInvalid,
		"drain.mode is Sidecar, but the operator has no image for the sidecar: set the operator's flag --worker-image",
		mode == v1alpha1.DrainSidecar && observation.Operator.Image == ""
}

func checkAllowedImages(observation *Observation, _ v1alpha1.DrainMode) (reason, message string, found bool) {
	pod := cmp.Or(observation.Pool.Spec.Template, &corev1.PodTemplateSpec{}).DeepCopy().Spec
	(&workloadBuilder{pool: observation.Pool}).workerContainer(&pod)
	if err := policy.CheckImages(&pod, &observation.Policies); err != nil {
		return v1alpha1.ReasonSpecInvalid, err.Error(), true
	}
	return "", "", false
}

func checkObservedProblem(observation *Observation, _ v1alpha1.DrainMode) (reason, message string, found bool) {
	if observation.Problem == nil {
		return "", "", false
	}
	return observation.Problem.Reason, observation.Problem.Message, true
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
