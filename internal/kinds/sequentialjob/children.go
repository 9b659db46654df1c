package sequentialjob

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// workspaceClaim returns the claim for spec.workspace, nil without one.
//
// A retained claim has no owner reference, so that the garbage collector keeps it; a label
// identifies its SequentialJob.
func workspaceClaim(sj *v1alpha1.SequentialJob) *corev1.PersistentVolumeClaim {
	workspace := sj.Spec.Workspace
	if workspace == nil {
		return nil
	}
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name:      WorkspaceName(sj),
			Namespace: sj.Namespace,
			Labels:    childLabels(sj, "workspace"),
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{workspace.AccessMode},
			StorageClassName: workspace.StorageClassName,
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: workspace.Size},
			},
		},
	}
	if workspace.Retention != v1alpha1.WorkspaceRetain {
		claim.OwnerReferences = decision.ControllerReferences("SequentialJob", sj)
	}
	return claim
}

// outputsConfigMap returns the ConfigMap with the outputs recorded in the status. It is nil if no
// step has had an output in any run: a later run removes the outputs of the run before.
func outputsConfigMap(sj *v1alpha1.SequentialJob, status *v1alpha1.SequentialJobStatus) *corev1.ConfigMap {
	hasOutputs := false
	data := map[string]string{}
	for _, step := range allStepSpecs(&sj.Spec) {
		if !step.Options().Outputs {
			continue
		}
		hasOutputs = true
		if recorded := findStep(status.Steps, step.Name); recorded != nil && recorded.Phase == v1alpha1.StepSucceeded {
			data[step.Name] = recorded.Output
		}
	}
	if !hasOutputs || (len(data) == 0 && status.Run == 1) {
		return nil
	}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name:            OutputsName(sj),
			Namespace:       sj.Namespace,
			Labels:          childLabels(sj, "outputs"),
			OwnerReferences: decision.ControllerReferences("SequentialJob", sj),
		},
		Data: data,
	}
}
