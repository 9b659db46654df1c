package sequentialjob

import (
	"encoding/json"
	"strings"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// specHashVersion precedes each hash of a step. It must change whenever the same step would get another
// hash: hashes of different versions are not compared, so that another release of the operator never takes
// a started step for a changed one. TestHashOfAStepIsStable fails if it has to change.
const specHashVersion = "v2:"

// stepHash returns a hash of a step in the spec. Steps that mean the same have the same hash: defaults and
// empty fields do not count.
func stepHash(step *v1alpha1.Step) string {
	canonical := step.DeepCopy()
	if options := canonical.Step; options != nil {
		if options.OnFailure == v1alpha1.OnFailureStop {
			options.OnFailure = ""
		}
		if options.BackoffLimit != nil && *options.BackoffLimit == 0 {
			options.BackoffLimit = nil
		}
	}
	return specHashVersion + contentHash(withoutEmptyFields(canonical))
}

// hasStepChanged reports whether a started step differs from the spec that it was started with. before is
// the step before the change, nil if that is unknown: then a step whose hash has another version counts
// as unchanged.
func hasStepChanged(record *v1alpha1.StepStatus, before, after *v1alpha1.Step) bool {
	if strings.HasPrefix(record.SpecHash, specHashVersion) {
		return stepHash(after) != record.SpecHash
	}
	return before != nil && stepHash(before) != stepHash(after)
}

// withoutEmptyFields returns the JSON form of a value without fields that are null, "", {} or []. Whether Go
// writes such a field depends on its declaration, which changes between releases of Kubernetes.
func withoutEmptyFields(value any) any {
	raw, err := json.Marshal(value)
	if err != nil { // API types always marshal
		return value
	}
	var parsed any
	if err := json.Unmarshal(raw, &parsed); err != nil {
		return value
	}
	return pruned(parsed)
}

// pruned removes empty fields, and those that are empty without their own empty fields.
func pruned(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key := range value {
			if value[key] = pruned(value[key]); isEmpty(value[key]) {
				delete(value, key)
			}
		}
	case []any:
		for i := range value {
			value[i] = pruned(value[i])
		}
	}
	return value
}

func isEmpty(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case string:
		return value == ""
	case map[string]any:
		return len(value) == 0
	case []any:
		return len(value) == 0
	default:
		return false
	}
}
