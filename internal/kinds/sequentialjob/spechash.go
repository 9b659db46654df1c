package sequentialjob

import (
	"encoding/json"
	"strings"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// specHashVersion is the prefix of each hash of a step. It must change whenever the same step would get another hash:
// hashes of different versions are not compared, so that a new release of the operator never considers a started step
// changed. TestHashOfAStepIsStable fails if it has to change.
const specHashVersion = "v2:"

// stepHash returns a hash of a step in the spec, without defaults and empty fields, so that equivalent steps have the
// same hash.
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

// hasStepChanged reports whether a change makes a step differ from the spec that it was started with. before is the step before the
// change; nil if unknown, which counts as unchanged if the hash of the started step has another version.
func hasStepChanged(record *v1alpha1.StepStatus, before, after *v1alpha1.Step) bool {
	isChange := before != nil && stepHash(before) != stepHash(after)
	if !strings.HasPrefix(record.SpecHash, specHashVersion) {
		return isChange
	}
	return stepHash(after) != record.SpecHash && (isChange || before == nil)
}

// withoutEmptyFields returns the JSON form of a value without fields that are null, "", {} or []: whether Go writes
// them depends on declarations, which change between releases of Kubernetes.
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

// pruned removes empty fields, innermost first.
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
