package sequence

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

const (
	// maxNameLength leaves a Job's name room for the "-<index>" that Indexed Jobs add
	// to it in Pod host names, which are DNS labels of 63 characters.
	maxNameLength = 52
	nameHashChars = 10
	specHashChars = 16
)

// jobName is the name of the Job for one attempt at a step. It depends on nothing that
// changes, so that a pass which does not see the Job it made finds the name taken
// instead of making a twin.
func jobName(sj *v1alpha1.SequentialJob, run int32, step string, attempt int32) string {
	return childName(sj.Name, step, fmt.Sprintf("%s/%d/%s/%d", sj.UID, run, step, attempt))
}

// WorkspaceName is the name of the SequentialJob's PersistentVolumeClaim.
func WorkspaceName(sj *v1alpha1.SequentialJob) string {
	return childName(sj.Name, "workspace", string(sj.UID)+"/workspace")
}

// OutputsName is the name of the ConfigMap that holds the outputs of its steps.
func OutputsName(sj *v1alpha1.SequentialJob) string {
	return childName(sj.Name, "outputs", string(sj.UID)+"/outputs")
}

// childName is "<owner>-<part>-<hash of identity>", a DNS label. Only the owner's name
// is cut to make it fit; the hash keeps names apart that are cut to the same text.
func childName(owner, part, identity string) string {
	suffix := "-" + part + "-" + digest([]byte(identity), nameHashChars)
	prefix := strings.ReplaceAll(owner, ".", "-")
	if room := maxNameLength - len(suffix); len(prefix) > room {
		prefix = strings.TrimRight(prefix[:room], "-")
	}
	return prefix + suffix
}

// labelValue cuts a name to what a label value can hold.
func labelValue(name string) string {
	const maxLabelValue = 63
	if len(name) > maxLabelValue {
		name = strings.TrimRight(name[:maxLabelValue], "-.")
	}
	return name
}

// hashOf is a short hash of a value's JSON form.
func hashOf(value any) string {
	raw, err := json.Marshal(value)
	if err != nil { // API types always marshal
		raw = fmt.Appendf(nil, "%#v", value)
	}
	return digest(raw, specHashChars)
}

func digest(raw []byte, chars int) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])[:chars]
}

// outputVariable is the environment variable in which later steps find a step's output.
func outputVariable(step string) string {
	return "STEP_" + strings.ToUpper(strings.ReplaceAll(step, "-", "_")) + "_OUTPUT"
}
