package jobreport

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
)

func failedEntry(name, key string, position int64) Entry {
	row := suspiciousEntry(name, SeverityMedium, time.Duration(position)*time.Hour)
	row.Finding.Reason = ReasonBackoffLimitExceeded
	row.Series = []Series{{Key: key, Position: position}}
	return row
}

// succeededEntry returns an entry of a healthy Job that supersedes earlier ones of its series.
func succeededEntry(name, key string, position int64) Entry {
	row := healthyEntry(name)
	row.Series = []Series{{Key: key, Position: position, Supersedes: true}}
	return row
}

// rerunEntry returns an entry of a failed Job that supersedes earlier ones of its series.
func rerunEntry(name, key string, position int64) Entry {
	row := failedEntry(name, key, position)
	row.Series[0].Supersedes = true
	return row
}

// inSeries adds a place in a further series.
func inSeries(entry Entry, key string, position int64) Entry {
	entry.Series = append(entry.Series, Series{Key: key, Position: position})
	return entry
}

func failedEntries(count int) []Entry {
	var all []Entry
	for i := range count {
		all = append(all, failedEntry(fmt.Sprintf("f-%d", i), "k", int64(i)))
	}
	return all
}

func TestAFailureIsHealthyOnceALaterJobSupersedesIt(t *testing.T) {
	withoutSeries := failedEntry("a", "k", 1)
	withoutSeries.Series = nil
	deleting := failedEntry("a", "k", 1)
	deleting.Finding.Reason = ReasonStuckTerminating
	for name, row := range map[string]struct {
		rows []Entry
		want []string
	}{
		"a later success":                               {[]Entry{failedEntry("a", "k", 1), succeededEntry("b", "k", 2)}, nil},
		"a later success that is listed first":          {[]Entry{succeededEntry("a", "k", 2), failedEntry("b", "k", 1)}, nil},
		"an earlier success proves nothing":             {[]Entry{succeededEntry("a", "k", 1), failedEntry("b", "k", 2)}, []string{"b"}},
		"a simultaneous success proves nothing":         {[]Entry{failedEntry("a", "k", 1), succeededEntry("b", "k", 1)}, []string{"a"}},
		"a success of another series":                   {[]Entry{failedEntry("a", "k", 1), succeededEntry("b", "l", 2)}, []string{"a"}},
		"only failures before the success":              {[]Entry{failedEntry("a", "k", 1), failedEntry("c", "k", 3), succeededEntry("b", "k", 2)}, []string{"c"}},
		"the latest of several successes":               {[]Entry{succeededEntry("d", "k", 4), succeededEntry("b", "k", 2), failedEntry("c", "k", 3)}, nil},
		"a rerun that failed":                           {[]Entry{rerunEntry("a", "k", 1), rerunEntry("b", "k", 2)}, []string{"b"}},
		"two failed Jobs of the same run":               {[]Entry{rerunEntry("a", "k", 1), rerunEntry("b", "k", 1)}, []string{"a", "b"}},
		"a failed Job that cannot be deleted stays":     {[]Entry{deleting, succeededEntry("b", "k", 2)}, []string{"a"}},
		"a failed Job without a series is not affected": {[]Entry{withoutSeries, succeededEntry("b", "k", 2)}, []string{"a"}},
		"a success in the second of two series":         {[]Entry{inSeries(failedEntry("a", "k", 1), "l", 1), succeededEntry("b", "l", 2)}, nil},
		"more failures than are kept":                   {append(failedEntries(3*MaxFindings), succeededEntry("z", "k", 1e6)), nil},
	} {
		t.Run(name, func(t *testing.T) {
			status := scanEntries(v1alpha1.JobReportStatus{}, testTime, 50, row.rows...)
			assert.Equal(t, "findings", row.want, findingNames(status.Findings))
			require.True(t, int(status.Summary.Suspicious) == len(row.want) && int(status.Summary.Healthy) == len(row.rows)-len(row.want),
				"summary %+v", status.Summary)
		})
	}
}

func TestAReportThatIsOnlyPrintedHasNoBoundOnItsSize(t *testing.T) {
	aggregator := NewAggregator(MaxFindings)
	for _, row := range largestEntries(MaxFindings) {
		aggregator.Add(row)
	}
	o := Observation{Report: &v1alpha1.JobReport{}, Scan: Scan{Jobs: aggregator, StartTime: testTime}, Now: testTime}
	if got := len(Decide(o).Status.Findings); got >= MaxFindings {
		t.Errorf("a stored report lists %d findings, want those that fit", got)
	}
	o.Unstored = true
	status := Decide(o).Status
	if got := len(status.Findings); got != MaxFindings || meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionTruncated) {
		t.Errorf("%d findings, want all: %+v", got, status.Conditions)
	}
}
