package pool

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// HasDrifted tells whether a revision is no longer what it was made as, because somebody has
// changed it by hand. What others have added to it is theirs; its replicas, and what it has
// been through, are written apart.
func HasDrifted(wanted, found Object) bool {
	if !equality.Semantic.DeepDerivative(wanted.GetLabels(), found.GetLabels()) ||
		wanted.GetAnnotations()[AnnotationImage] != found.GetAnnotations()[AnnotationImage] {
		return true
	}
	switch wanted := wanted.(type) {
	case *appsv1.Deployment:
		found, is := found.(*appsv1.Deployment)
		return !is || !equality.Semantic.DeepDerivative(wanted.Spec.Template, found.Spec.Template)
	case *appsv1.StatefulSet:
		found, is := found.(*appsv1.StatefulSet)
		return !is || !equality.Semantic.DeepDerivative(wanted.Spec.Template, found.Spec.Template)
	}
	return false
}
