package sequentialjob

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// workspaceLoss returns why the workspace of earlier steps is lost; empty if it is not. An older operator did not
// record the UID of the claim.
func workspaceLoss(sj *v1alpha1.SequentialJob, recorded types.UID, claim *metav1.PartialObjectMetadata) string {
	loss := ""
	switch {
	case claim == nil:
		loss = "no longer exists"
	case recorded != "" && claim.UID != recorded,
		recorded == "" && !decision.WasCreatedFor(sj, claim, v1alpha1.LabelSequentialJobUID):
		loss = "was replaced by another one"
	case !claim.DeletionTimestamp.IsZero():
		loss = "is being deleted"
	default:
		return ""
	}
	return fmt.Sprintf("PersistentVolumeClaim %s with the workspace %s", WorkspaceName(sj), loss)
}

// workspaceClaim returns the claim for spec.workspace, or nil.
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
				Requests: corev1.ResourceList{corev1.ResourceStorage: ptr.Deref(workspace.Size, resource.Quantity{})},
			},
		},
	}
	if workspace.Retention != v1alpha1.WorkspaceRetain {
		claim.OwnerReferences = decision.ControllerReferences("SequentialJob", sj)
	}
	return claim
}
