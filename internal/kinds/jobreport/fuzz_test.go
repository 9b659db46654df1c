package jobreport

import (
	"encoding/json"
	"testing"
	"time"
	"unicode/utf8"

	batchv1 "k8s.io/api/batch/v1"

	"github.com/yardmaster/yardmaster/test/require"
)

func FuzzEveryJobHasAFinding(f *testing.F) {
	for _, sample := range readSamples(f) {
		raw, err := json.Marshal(sample.job)
		require.NoError(f, err)
		f.Add(raw, testTimePlus(100*oneDay).Unix())
	}
	f.Fuzz(func(t *testing.T, raw []byte, seconds int64) {
		job := &batchv1.Job{}
		if json.Unmarshal(raw, job) != nil {
			return
		}
		now := time.Unix(seconds, 0)
		finding := Classify(job, now, DefaultThresholds())
		problem := findingProblem(finding)
		require.True(t, problem == "", "%s: %+v", problem, finding)
		require.Equal(t, finding, Classify(job, now, DefaultThresholds()))
	})
}

// findingProblem returns what is inconsistent in a finding, or "".
func findingProblem(finding Finding) string {
	switch {
	case finding == (Finding{Category: CategoryHealthy}), finding == (Finding{Category: CategoryIgnored}):
		return ""
	case finding.Category == CategoryHealthy || finding.Category == CategoryIgnored:
		return "healthy or ignored, but other fields are set"
	case finding.Reason == "" || finding.Message == "":
		return "not healthy, but reason or message is missing"
	case finding.Category == CategoryZombie && finding.Severity != SeverityHigh && finding.Reason != ReasonFailedLongAgo:
		return "a zombie without high severity"
	case finding.Category == CategorySuspicious && (finding.Severity == SeverityLow) != (finding.Reason == ReasonFinishedNotCleaned):
		return "the wrong severity"
	case len(finding.Message) > MaxMessageBytes || len(finding.Cause) > MaxCauseBytes:
		return "too long"
	case !utf8.ValidString(finding.Message) || !utf8.ValidString(finding.Cause):
		return "invalid UTF-8"
	default:
		return ""
	}
}
