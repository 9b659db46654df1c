package queue

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// Validate returns the errors of a spec that no rule of the CRD finds. It leaves out what a
// Policy may complete, such as retry, because only the effective values can be checked.
func Validate(q *v1alpha1.Queue) field.ErrorList {
	desired := DesiredQueue(q, &v1alpha1.QueueEffective{RateLimit: q.Spec.RateLimit})
	if desired.Owner.UID == "" {
		desired.Owner.UID = "unassigned" // the API server assigns it after admission
	}
	return toFieldErrors(desired.Validate())
}

// toFieldErrors converts the errors of a broker.QueueConfig, whose fields are named as in the
// spec.
func toFieldErrors(err error) field.ErrorList {
	var all field.ErrorList
	for _, problem := range splitJoined(err) {
		path, detail, _ := strings.Cut(problem.Error(), " ")
		all = append(all, field.Invalid(field.NewPath("spec", strings.Split(path, ".")...), field.OmitValueType{}, detail))
	}
	return all
}

func splitJoined(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	if err == nil {
		return nil
	}
	return []error{err}
}
