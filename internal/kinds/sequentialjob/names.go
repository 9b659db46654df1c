package sequentialjob

import (
	"fmt"
	"strings"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

const (
	// maxNameLength leaves room for the "-<index>" that Indexed Jobs append in the host names of Pods, which are DNS
	// labels of at most 63 characters.
	maxNameLength     = 52
	nameHashLength    = 10
	contentHashLength = 16
)

// jobName returns the name of the Job for an attempt at a step. The name is deterministic, so that a reconciliation
// with a stale cache gets AlreadyExists instead of creating a second Job.
func jobName(sj *v1alpha1.SequentialJob, run int32, step string, attempt int32) string {
	return childName(sj.Name, step, fmt.Sprintf("%s/%d/%s/%d", sj.UID, run, step, attempt))
}

// WorkspaceName returns the name of the SequentialJob's PersistentVolumeClaim.
func WorkspaceName(sj *v1alpha1.SequentialJob) string {
	return childName(sj.Name, "workspace", string(sj.UID)+"/workspace")
}

// OutputsName returns the name of the ConfigMap that holds the outputs of its steps.
func OutputsName(sj *v1alpha1.SequentialJob) string {
	return childName(sj.Name, "outputs", string(sj.UID)+"/outputs")
}

// childName returns "<owner>-<part>-<hash of identity>", a DNS label. Only the owner's name is
// truncated to fit; the hash distinguishes names that are truncated to the same text.
func childName(owner, part, identity string) string {
	suffix := "-" + part + "-" + decision.HexDigest([]byte(identity), nameHashLength)
	prefix := strings.ReplaceAll(owner, ".", "-")
	if room := maxNameLength - len(suffix); len(prefix) > room {
		prefix = strings.TrimRight(prefix[:room], "-")
	}
	return prefix + suffix
}

func labelValue(name string) string {
	const maxLabelValue = 63
	if len(name) > maxLabelValue {
		name = strings.TrimRight(name[:maxLabelValue], "-.")
	}
	return name
}

func contentHash(value any) string { return decision.ContentHash(value, contentHashLength) }

func outputEnvName(step string) string {
	return "STEP_" + strings.ToUpper(strings.ReplaceAll(step, "-", "_")) + "_OUTPUT"
}
