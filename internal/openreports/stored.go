package openreports

import (
	"slices"

	openreportsv1alpha1 "github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// IsManagedByYardmaster reports whether a Report of that name may be written over. One without the label
// was made by somebody else.
func IsManagedByYardmaster(stored *openreportsv1alpha1.Report) bool {
	return stored.Labels[managedByLabel] == reportSource
}

// HasSameContent reports whether a stored Report says already what next does. What others have
// added to its metadata does not matter.
func HasSameContent(stored, next *openreportsv1alpha1.Report) bool {
	return hasOwnerReferences(stored, next.OwnerReferences) &&
		stored.Source == next.Source &&
		equality.Semantic.DeepEqual(stored.Scope, next.Scope) &&
		stored.Summary == next.Summary &&
		equality.Semantic.DeepEqual(stored.Results, next.Results)
}

func hasOwnerReferences(stored *openreportsv1alpha1.Report, by []metav1.OwnerReference) bool {
	for i := range by {
		if !slices.ContainsFunc(stored.OwnerReferences, func(owner metav1.OwnerReference) bool { return owner.UID == by[i].UID }) {
			return false
		}
	}
	return true
}
