package workerpool

import (
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/yardmaster/yardmaster/internal/decision"
)

// HasDrifted reports whether someone changed what the operator set on a revision. Fields that
// others added are ignored. Replicas and history are written separately and are ignored too.
func HasDrifted(desired, found decision.Object) bool {
	if !equality.Semantic.DeepDerivative(desired.GetLabels(), found.GetLabels()) ||
		desired.GetAnnotations()[AnnotationImage] != found.GetAnnotations()[AnnotationImage] {
		return true
	}
	return !isContained(jsonOf(templateOf(desired)), jsonOf(templateOf(found)))
}

// jsonOf returns the JSON form of an object, which has no fields that are not set: the API server sets many of them.
func jsonOf(object any) map[string]any {
	// A Pod template has no value without a JSON form.
	fields, _ := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	return fields
}

// isContained reports whether all that is set in a desired value is set in the one that was found.
func isContained(desired, found any) bool {
	switch desired := desired.(type) {
	case nil:
		return true
	case map[string]any:
		found, _ := found.(map[string]any)
		for key, value := range desired {
			if !isContained(value, found[key]) {
				return false
			}
		}
		return true
	case []any:
		found, _ := found.([]any)
		if len(found) < len(desired) { // others may have appended items
			return false
		}
		for i := range desired {
			if !isContained(desired[i], found[i]) {
				return false
			}
		}
		return true
	}
	return desired == found
}
