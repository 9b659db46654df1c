package queue

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// Validate tells what is wrong with a spec by itself, where a rule of the CRD cannot. What
// a Policy may complete, as retry, is left out: only then it is known what holds.
func Validate(q *v1alpha1.Queue) field.ErrorList {
	wanted := DesiredQueue(q, &v1alpha1.QueueEffective{RateLimit: q.Spec.RateLimit})
	if wanted.Owner.UID == "" {
		wanted.Owner.UID = "new" // the API server has yet to give it
	}
	return fieldErrors(wanted.Validate())
}

// fieldErrors are a broker.Queue's, whose fields have the spec's names.
func fieldErrors(err error) field.ErrorList {
	if err == nil {
		return nil
	}
	var all field.ErrorList
	for _, problem := range unjoin(err) {
		path, detail, _ := strings.Cut(problem.Error(), " ")
		all = append(all, field.Invalid(field.NewPath("spec", strings.Split(path, ".")...), field.OmitValueType{}, detail))
	}
	return all
}

func unjoin(err error) []error {
	if joined, is := err.(interface{ Unwrap() []error }); is {
		return joined.Unwrap()
	}
	return []error{err}
}
