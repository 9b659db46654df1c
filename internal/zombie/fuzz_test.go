package zombie

import (
	"encoding/json"
	"testing"
	"time"
	"unicode/utf8"

	batchv1 "k8s.io/api/batch/v1"
)

// Whatever a Job says of itself: it is classified, and the finding is whole.
func FuzzEveryJobHasAFinding(f *testing.F) {
	for _, reason := range Reasons() {
		raw, err := json.Marshal(jobWith(afflictions[reason]...))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw, int64(100*day/time.Second))
	}
	f.Fuzz(func(t *testing.T, raw []byte, seconds int64) {
		job := &batchv1.Job{}
		if json.Unmarshal(raw, job) != nil {
			return
		}
		now := time.Unix(seconds, 0)
		finding := Classify(job, now, Defaults())
		if problem := problemOf(finding); problem != "" {
			t.Errorf("%s: %+v", problem, finding)
		}
		if again := Classify(job, now, Defaults()); again != finding {
			t.Errorf("it is %+v, and then %+v", finding, again)
		}
	})
}

// problemOf says what is wrong with a finding in itself.
func problemOf(finding Finding) string {
	switch {
	case finding.Category == Healthy && finding != (Finding{Category: Healthy}):
		return "healthy, and something is said of it"
	case finding.Category == Healthy:
		return ""
	case finding.Reason == "" || finding.Message == "":
		return "not healthy, and no reason is given"
	case finding.Category == Zombie && finding.Severity != High:
		return "a zombie that does not matter"
	case finding.Category == Suspicious && (finding.Severity == Low) != (finding.Reason == FinishedNotCleaned):
		return "the wrong severity"
	case len(finding.Message) > MaxMessage || len(finding.Cause) > MaxCause:
		return "too long"
	case !utf8.ValidString(finding.Message) || !utf8.ValidString(finding.Cause):
		return "not text"
	default:
		return ""
	}
}
