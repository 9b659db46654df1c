package jobreport

import (
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestReportIgnore(t *testing.T) {
	ignore := annotated(v1alpha1.AnnotationReportIgnore, "true")
	checkClassification(t, map[string]classification{
		"no rule applies to the Job":         {jobWith(startedJob, deletedAt(0), ignore), 30 * oneDay, "Ignored"},
		"a healthy Job is counted as well":   {jobWith(ignore), 0, "Ignored"},
		"True and 1 are true":                {jobWith(annotated(v1alpha1.AnnotationReportIgnore, "True")), oneDay, "Ignored"},
		"any other value has no effect":      {jobWith(annotated(v1alpha1.AnnotationReportIgnore, "yes")), oneDay, "Zombie NeverStarted"},
		"the value false does not ignore it": {jobWith(annotated(v1alpha1.AnnotationReportIgnore, "false")), oneDay, "Zombie NeverStarted"},
	})
}

func TestReportRunningTooLong(t *testing.T) {
	running := func(limit string) []jobTrait {
		return []jobTrait{startedJob, podCounts(1, 1), annotated(v1alpha1.AnnotationReportRunningTooLong, limit)}
	}
	checkClassification(t, map[string]classification{
		"less than the stated time":       {jobWith(running("10d")...), 10*oneDay - 1, "Ignored"},
		"longer than the stated time":     {jobWith(running("10d")...), 10 * oneDay, "Suspicious RunningTooLong"},
		"never a zombie":                  {jobWith(running("10d")...), 1000 * oneDay, "Suspicious RunningTooLong"},
		"0 means never":                   {jobWith(running("0s")...), 1000 * oneDay, "Ignored"},
		"a shorter time than the default": {jobWith(running("1h")...), time.Hour, "Suspicious RunningTooLong"},
		"an invalid time has no effect":   {jobWith(running("a week")...), 7 * oneDay, "Zombie RunningTooLong"},
		"a negative time has no effect":   {jobWith(running("-1h")...), 7 * oneDay, "Zombie RunningTooLong"},
		"other rules still apply":         {jobWith(append(running("10d"), podCounts(1, 0))...), oneDay, "Zombie NoReadyPods"},
	})
}

func TestDurationsMayCountDays(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"7d": 7 * oneDay, "90m": 90 * time.Minute, "1d12h": 36 * time.Hour, "0": 0, "0s": 0, "36h": 36 * time.Hour, "1h30m5s": time.Hour + 30*time.Minute + 5*time.Second,
	} {
		got, err := ParseDuration(text)
		require.True(t, err == nil && got == want, "%q is %s, %v, want %s", text, got, err, want)
		if again, err := ParseDuration(FormatDuration(want)); err != nil || again != want {
			t.Errorf("%s is formatted as %q", want, FormatDuration(want))
		}
	}
	for _, text := range []string{"", "d", "7", "7D", "1.5d", "-7d", "7d-1h", "a week", "1h7d", "99999999999999d", "d1h"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("%q is accepted as %s", text, got)
		}
	}
	for d, want := range map[time.Duration]string{
		7 * oneDay: "7d", 36 * time.Hour: "1d12h", 30 * time.Minute: "30m", time.Hour: "1h", 0: "0s", time.Hour + time.Second: "1h0m1s", 5 * time.Second: "5s",
	} {
		assert.Equal(t, d.String(), want, FormatDuration(d))
	}
}
