package schedule

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestTimesFollowDaylightSavingAndLeapYears(t *testing.T) {
	in := func(zone, schedule string) v1alpha1.Cron { return v1alpha1.Cron{TimeZone: zone, Schedule: schedule} }
	berlin := func(schedule string) v1alpha1.Cron { return in("Europe/Berlin", schedule) }
	skipsGap, runsTwice := berlin("30 2 * * *"), berlin("30 2 * * *")
	skipsGap.InGap, runsTwice.InOverlap = v1alpha1.GapSkip, v1alpha1.OverlapBoth
	for title, test := range map[string]struct {
		of          v1alpha1.Cron
		after, want string
	}{
		"a time that the change to daylight saving time skips is due after the change": {
			berlin("30 2 * * *"), "2026-03-28T00:00:00Z", "2026-03-28T02:30+01:00 2026-03-29T03:00+02:00 2026-03-30T02:30+02:00",
		},
		"with Skip, it is not due on that day": {skipsGap, "2026-03-28T12:00:00Z", "2026-03-30T02:30+02:00"},
		"a time that is repeated is due once":  {berlin("30 2 * * *"), "2026-10-24T12:00:00Z", "2026-10-25T02:30+02:00 2026-10-26T02:30+01:00"},
		"with Both, it is due twice":           {runsTwice, "2026-10-24T12:00:00Z", "2026-10-25T02:30+02:00 2026-10-25T02:30+01:00 2026-10-26T02:30+01:00"},
		"an interval continues while the clocks go forward": {
			berlin("*/30 1-3 * * *"), "2026-03-29T00:00:00Z", "2026-03-29T01:30+01:00 2026-03-29T03:00+02:00 2026-03-29T03:30+02:00 2026-03-30T01:00+02:00",
		},
		"an interval continues while the clocks go back": {
			berlin("30 * * * *"), "2026-10-24T23:45:00Z", "2026-10-25T02:30+02:00 2026-10-25T02:30+01:00 2026-10-25T03:30+01:00",
		},
		"a day without midnight is a day like others": {in("Africa/Cairo", "0 9 * * 5"), "2027-04-29T00:00:00Z", "2027-04-30T09:00+03:00"},
		"a month with a day without midnight":         {in("America/Santiago", "0 9 * 9 6"), "2027-09-04T14:00:00Z", "2027-09-11T09:00-03:00"},
		"the leap day, which 2100 does not have":      {in("", "0 0 29 2 *"), "2092-03-01T00:00:00Z", "2096-02-29T00:00Z 2104-02-29T00:00Z"},
		"the last day of a month":                     {in("", "0 0 31 * *"), "2026-01-31T12:00:00Z", "2026-03-31T00:00Z 2026-05-31T00:00Z"},
		"a macro":                                     {in("", "@monthly"), "2026-01-31T12:00:00Z", "2026-02-01T00:00Z 2026-03-01T00:00Z"},
	} {
		t.Run(title, func(t *testing.T) {
			timetable, err := NewTimetable(test.of)
			require.NoError(t, err)
			at, err := time.Parse(time.RFC3339, test.after)
			require.NoError(t, err)
			var times []string
			for range strings.FieldsSeq(test.want) {
				at = timetable.Next(at)
				times = append(times, at.In(timetable.location).Format("2006-01-02T15:04Z07:00"))
			}
			assert.Equal(t, "times", test.want, strings.Join(times, " "))
		})
	}
}

func TestInvalidTimetablesAreRefused(t *testing.T) {
	for title, test := range map[string]struct{ expression, timeZone, want string }{
		"too few fields":         {"0 2 * *", "", "schedule expected exactly 5 fields"},
		"seconds":                {"0 0 2 * * *", "", "schedule expected exactly 5 fields"},
		"out of range":           {"61 2 * * *", "", "above maximum"},
		"a step of zero":         {"*/0 * * * *", "", "step"},
		"empty":                  {"", "", "schedule"},
		"a day that never comes": {"0 0 30 2 *", "", "schedule is never due"},
		"an interval":            {"@every 10m", "", "cannot be @every"},
		"a zone in the schedule": {"TZ=Europe/Berlin 0 2 * * *", "", "use timeZone"},
		"CRON_TZ":                {"CRON_TZ=UTC 0 2 * * *", "", "use timeZone"},
		"an unknown zone":        {"0 2 * * *", "Europe/Atlantis", "timeZone is not the name"},
		"the operator's zone":    {"0 2 * * *", "Local", "timeZone must be the name"},
		"a path":                 {"0 2 * * *", "../etc/passwd", "timeZone is not the name"},
	} {
		t.Run(title, func(t *testing.T) {
			_, err := NewTimetable(v1alpha1.Cron{Schedule: test.expression, TimeZone: test.timeZone})
			require.ErrorContains(t, err, test.want)
		})
	}
}

func TestJitterIsStableAndEndsBeforeTheNextTime(t *testing.T) {
	timetable, err := NewTimetable(v1alpha1.Cron{Schedule: "*/10 * * * *"})
	require.NoError(t, err)
	due := time.Date(2026, time.May, 4, 12, 0, 0, 0, time.UTC)
	delays := map[time.Duration]bool{}
	for range 200 {
		next := timetable.Next(due)
		for _, jitter := range []time.Duration{0, time.Second, 5 * time.Minute, 24 * time.Hour} {
			start := timetable.StartTime("some-uid", due, jitter)
			if start.Before(due) || !start.Before(next) || jitter > 0 && start.Sub(due) >= jitter {
				t.Fatalf("with jitter %s, %s starts at %s; the next time is %s", jitter, due, start, next)
			}
			again := timetable.StartTime("some-uid", due, jitter)
			require.True(t, again.Equal(start), "%s starts at %s and at %s", due, start, again)
			delays[start.Sub(due)] = true
		}
		due = next
	}
	require.True(t, len(delays) >= 100, "%d different delays of 400", len(delays))
}

func TestJitterSpreadsSchedulesWithTheSameTime(t *testing.T) {
	timetable, err := NewTimetable(v1alpha1.Cron{Schedule: "0 2 * * *"})
	require.NoError(t, err)
	due := time.Date(2026, time.May, 4, 2, 0, 0, 0, time.UTC)
	perMinute := map[int]int{}
	for i := range 1000 {
		start := timetable.StartTime(types.UID(time.Duration(i).String()), due, 10*time.Minute)
		perMinute[int(start.Sub(due)/time.Minute)]++
	}
	for minute := range 10 {
		count := perMinute[minute]
		require.True(t, count >= 60 && count <= 140, "%d of 1000 start in minute %d of 10", count, minute)
	}
}

// FuzzExpression checks that no expression panics, and that accepted ones have times that increase.
func FuzzExpression(f *testing.F) {
	for _, seed := range []string{"0 2 * * *", "*/5 1-3,7 L * MON-FRI", "@daily", "@every 1h", "1/2 ? 31 2 7", "0 0 * * 8", "*/99999999999 * * * *", "-1 * * * *"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, expression string) {
		timetable, err := NewTimetable(v1alpha1.Cron{Schedule: expression, TimeZone: "Europe/Berlin"})
		if err != nil {
			return
		}
		at := time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)
		for range 20 {
			next := timetable.Next(at)
			if next.IsZero() {
				return
			}
			require.True(t, next.After(at) && next.Second() == 0, "%q: after %s comes %s", expression, at, next)
			at = next
		}
	})
}
