package pool

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/yardmaster/yardmaster/internal/core"
)

// HasDrifted reports whether someone changed what the operator set on a revision. Fields that
// others added are ignored. Replicas and history are written separately and are ignored too.
func HasDrifted(desired, found core.Object) bool {
	if !equality.Semantic.DeepDerivative(desired.GetLabels(), found.GetLabels()) ||
		desired.GetAnnotations()[AnnotationImage] != found.GetAnnotations()[AnnotationImage] {
		return true
	}
	switch desired := desired.(type) {
	case *appsv1.Deployment:
		found, ok := found.(*appsv1.Deployment)
		return !ok || !equality.Semantic.DeepDerivative(desired.Spec.Template, found.Spec.Template)
	case *appsv1.StatefulSet:
		found, ok := found.(*appsv1.StatefulSet)
		return !ok || !equality.Semantic.DeepDerivative(desired.Spec.Template, found.Spec.Template)
	}
	return false
}
