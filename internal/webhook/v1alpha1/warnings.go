package v1alpha1

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// specWarnings tell of what is allowed but is seldom meant.
func specWarnings(sj *v1alpha1.SequentialJob) admission.Warnings {
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
		warnings = append(warnings, path+".command: the step keeps the args of spec.template; set args too if its command is not for them")
	}
	workspace := sj.Spec.Workspace
	if workspace == nil {
		return warnings
	}
	for i, mount := range step.VolumeMounts {
		if mount.MountPath == workspace.MountPath && mount.Name != "workspace" {
			warnings = append(warnings, fmt.Sprintf("%s.volumeMounts[%d]: it takes the place of the workspace in this step", path, i))
		}
	}
	parallelism := step.Options().Parallelism
	if workspace.AccessMode == corev1.ReadWriteOncePod && parallelism != nil && *parallelism > 1 {
		warnings = append(warnings, path+".step.parallelism: only one Pod at a time can use a workspace with accessMode ReadWriteOncePod")
	}
	return warnings
}

// templateArgs are the args that every step gets which sets none.
func templateArgs(sj *v1alpha1.SequentialJob) []string {
	if sj.Spec.Template == nil || len(sj.Spec.Template.Spec.Containers) == 0 {
		return nil
	}
	return sj.Spec.Template.Spec.Containers[0].Args
}

// changeWarnings tell when a change does nothing for now.
func changeWarnings(before, after *v1alpha1.SequentialJob) admission.Warnings {
	switch asked := rerunAsked(before, after); {
	case asked && !finished(before) && before.Status.Run > 0:
		return admission.Warnings{"spec.rerun: the run goes on; the rerun begins when it has ended"}
	case !asked && finished(before) && stepsChanged(before, after):
		return admission.Warnings{"spec: the run has ended; the changed steps run when spec.rerun.id changes"}
	default:
		return nil
	}
}

func stepsChanged(before, after *v1alpha1.SequentialJob) bool {
	return !equality.Semantic.DeepEqual(before.Spec.Containers, after.Spec.Containers) ||
		!equality.Semantic.DeepEqual(before.Spec.Finally, after.Spec.Finally) ||
		!equality.Semantic.DeepEqual(before.Spec.Template, after.Spec.Template)
}
