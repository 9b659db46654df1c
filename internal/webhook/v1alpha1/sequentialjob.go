package v1alpha1

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/sequence"
)

// SequentialJobValidator validates SequentialJobs.
var SequentialJobValidator = &specValidator[*v1alpha1.SequentialJob]{
	kind:           "SequentialJob",
	webhook:        "sequentialjobs.yardmaster.dev",
	specOf:         func(sj *v1alpha1.SequentialJob) any { return sj.Spec },
	validate:       validateSequentialJob,
	warn:           sequentialJobWarnings,
	validateChange: validateSequentialJobChange,
	warnChange:     sequentialJobChangeWarnings,
}

func validateSequentialJob(sj *v1alpha1.SequentialJob) field.ErrorList {
	if !sequence.IsManaged(sj) {
		return nil
	}
	return sequence.Validate(sj)
}

// validateSequentialJobChange refuses changes to started steps, and reruns that are not possible.
func validateSequentialJobChange(before, after *v1alpha1.SequentialJob) field.ErrorList {
	if !sequence.IsManaged(after) {
		return nil
	}
	return append(sequence.ImmutabilityViolations(&after.Spec, &before.Status), validateRerun(before, after)...)
}

// validateRerun refuses to request a rerun of a finished run that is not possible. A rerun that
// was requested earlier does not prevent other changes.
func validateRerun(before, after *v1alpha1.SequentialJob) field.ErrorList {
	if !sequence.IsFinished(&before.Status) || !requestsRerun(before, after) {
		return nil
	}
	if err := sequence.CheckRerun(&after.Spec, &before.Status); err != nil {
		value := "id " + after.Spec.Rerun.ID + " from " + after.Spec.Rerun.From
		return field.ErrorList{field.Invalid(field.NewPath("spec", "rerun"), value, err.Error())}
	}
	return nil
}

// requestsRerun reports whether this change requests another run.
func requestsRerun(before, after *v1alpha1.SequentialJob) bool {
	return sequence.IsRerunRequested(&after.Spec, &before.Status) &&
		!equality.Semantic.DeepEqual(before.Spec.Rerun, after.Spec.Rerun)
}

// sequentialJobWarnings warns of settings that are valid but rarely intended.
func sequentialJobWarnings(_ context.Context, sj *v1alpha1.SequentialJob) admission.Warnings {
	if !sequence.IsManaged(sj) {
		return nil
	}
	var warnings admission.Warnings
	for i := range sj.Spec.Containers {
		warnings = append(warnings, stepWarnings(sj, &sj.Spec.Containers[i], fmt.Sprintf("spec.containers[%d]", i))...)
	}
	for i := range sj.Spec.Finally {
		warnings = append(warnings, stepWarnings(sj, &sj.Spec.Finally[i], fmt.Sprintf("spec.finally[%d]", i))...)
	}
	return warnings
}

func stepWarnings(sj *v1alpha1.SequentialJob, step *v1alpha1.Step, path string) admission.Warnings {
	var warnings admission.Warnings
	if len(step.Command) > 0 && step.Args == nil && len(templateArgs(sj)) > 0 {
		warnings = append(warnings, path+".command: the step uses the args of spec.template; set args too unless they are meant for this command")
	}
	workspace := sj.Spec.Workspace
	if workspace == nil {
		return warnings
	}
	for i, mount := range step.VolumeMounts {
		if mount.MountPath == workspace.MountPath && mount.Name != "workspace" {
			warnings = append(warnings, fmt.Sprintf("%s.volumeMounts[%d]: this mount replaces the workspace in this step", path, i))
		}
	}
	parallelism := step.Options().Parallelism
	if workspace.AccessMode == corev1.ReadWriteOncePod && parallelism != nil && *parallelism > 1 {
		warnings = append(warnings, path+".step.parallelism: only one Pod at a time can use a workspace with accessMode ReadWriteOncePod")
	}
	return warnings
}

// templateArgs returns the args of every step that sets none.
func templateArgs(sj *v1alpha1.SequentialJob) []string {
	if sj.Spec.Template == nil || len(sj.Spec.Template.Spec.Containers) == 0 {
		return nil
	}
	return sj.Spec.Template.Spec.Containers[0].Args
}

// sequentialJobChangeWarnings warns of changes that have no effect yet.
func sequentialJobChangeWarnings(before, after *v1alpha1.SequentialJob) admission.Warnings {
	if !sequence.IsManaged(after) {
		return nil
	}
	switch requested := requestsRerun(before, after); {
	case requested && !sequence.IsFinished(&before.Status) && before.Status.Run > 0:
		return admission.Warnings{"spec.rerun: the rerun starts when the current run has finished"}
	case !requested && sequence.IsFinished(&before.Status) && stepsChanged(before, after):
		return admission.Warnings{"spec: the run has finished; change spec.rerun.id to run the changed steps"}
	default:
		return nil
	}
}

func stepsChanged(before, after *v1alpha1.SequentialJob) bool {
	return !equality.Semantic.DeepEqual(before.Spec.Containers, after.Spec.Containers) ||
		!equality.Semantic.DeepEqual(before.Spec.Finally, after.Spec.Finally) ||
		!equality.Semantic.DeepEqual(before.Spec.Template, after.Spec.Template)
}
