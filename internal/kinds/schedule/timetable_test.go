package schedule

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

func timesAfter(t *testing.T, expression, timeZone, after string, count int) []string {
	t.Helper()
	timetable, err := NewTimetable(v1alpha1.Cron{Schedule: expression, TimeZone: timeZone})
	if err != nil {
		t.Fatal(err)
	}
	at, err := time.Parse(time.RFC3339, after)
	if err != nil {
		t.Fatal(err)
	}
	var times []string
	for range count {
		at = timetable.Next(at)
		times = append(times, at.In(timetable.location).Format(time.RFC3339))
	}
	return times
}

func TestTimesFollowDaylightSavingAndLeapYears(t *testing.T) {
	tests := map[string]struct {
		expression, timeZone, after string
		want                        []string
	}{
		"without a time zone, times are in UTC": {
			"0 2 * * *", "", "2026-03-28T12:00:00Z",
			[]string{"2026-03-29T02:00:00Z", "2026-03-30T02:00:00Z"},
		},
		"a time that the change to daylight saving time skips is due after the change": {
			"30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z",
			[]string{"2026-03-28T02:30:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"},
		},
		"times that coincide after the change are one": {
			"0,30 2,3 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z",
			[]string{"2026-03-29T03:00:00+02:00", "2026-03-29T03:30:00+02:00", "2026-03-30T02:00:00+02:00"},
		},
		"a time that the change back repeats is due once": {
			"30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z",
			[]string{"2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"},
		},
		"an interval continues while the clocks go forward": {
			"*/30 1-3 * * *", "Europe/Berlin", "2026-03-29T00:00:00Z",
			[]string{"2026-03-29T01:30:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-29T03:30:00+02:00", "2026-03-30T01:00:00+02:00"},
		},
		"an interval continues while the clocks go back": {
			"30 * * * *", "Europe/Berlin", "2026-10-24T23:45:00Z",
			[]string{"2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00", "2026-10-25T03:30:00+01:00"},
		},
		"other times keep their local hour": {
			"0 6 * * *", "America/New_York", "2026-03-07T12:00:00Z",
			[]string{"2026-03-08T06:00:00-04:00", "2026-03-09T06:00:00-04:00"},
		},
		"a change of half an hour": {
			"15 2 * * *", "Australia/Lord_Howe", "2026-10-02T12:00:00Z",
			[]string{"2026-10-03T02:15:00+10:30", "2026-10-04T02:30:00+11:00", "2026-10-05T02:15:00+11:00"},
		},
		"a change at midnight": {
			"0 0 * * *", "America/Santiago", "2026-09-04T12:00:00Z",
			[]string{"2026-09-05T00:00:00-04:00", "2026-09-06T01:00:00-03:00", "2026-09-07T00:00:00-03:00"},
		},
		"a zone without daylight saving time": {
			"30 2 * * 0", "Asia/Kolkata", "2026-03-28T12:00:00Z",
			[]string{"2026-03-29T02:30:00+05:30", "2026-04-05T02:30:00+05:30"},
		},
		"the leap day": {
			"0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z",
			[]string{"2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"},
		},
		"the last day of a month": {
			"0 0 31 * *", "UTC", "2026-01-31T12:00:00Z",
			[]string{"2026-03-31T00:00:00Z", "2026-05-31T00:00:00Z"},
		},
		"names of days and macros": {
			"@monthly", "UTC", "2026-01-31T12:00:00Z",
			[]string{"2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z"},
		},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			if diff := cmp.Diff(test.want, timesAfter(t, test.expression, test.timeZone, test.after, len(test.want))); diff != "" {
				t.Errorf("times (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFieldsDecideAboutTimesThatTheClocksSkipOrRepeat(t *testing.T) {
	for title, test := range map[string]struct {
		of    v1alpha1.Cron
		after string
		want  string
	}{
		"Skip":     {v1alpha1.Cron{InGap: v1alpha1.GapSkip}, "2026-03-28T12:00:00Z", "2026-03-30T02:30:00+02:00"},
		"RunAfter": {v1alpha1.Cron{InGap: v1alpha1.GapRunAfter}, "2026-03-28T12:00:00Z", "2026-03-29T03:00:00+02:00"},
		"First":    {v1alpha1.Cron{InOverlap: v1alpha1.OverlapFirst}, "2026-10-25T00:30:00Z", "2026-10-26T02:30:00+01:00"},
		"Both":     {v1alpha1.Cron{InOverlap: v1alpha1.OverlapBoth}, "2026-10-25T00:30:00Z", "2026-10-25T02:30:00+01:00"},
	} {
		t.Run(title, func(t *testing.T) {
			test.of.Schedule, test.of.TimeZone = "30 2 * * *", "Europe/Berlin"
			timetable, err := NewTimetable(test.of)
			if err != nil {
				t.Fatal(err)
			}
			after, err := time.Parse(time.RFC3339, test.after)
			if err != nil {
				t.Fatal(err)
			}
			if next := timetable.Next(after).In(timetable.location).Format(time.RFC3339); next != test.want {
				t.Errorf("after %s, %s is due, want %s", test.after, next, test.want)
			}
		})
	}
}

func TestInvalidTimetablesAreRefused(t *testing.T) {
	tests := map[string]struct {
		expression, timeZone, want string
	}{
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
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			if _, err := NewTimetable(v1alpha1.Cron{Schedule: test.expression, TimeZone: test.timeZone}); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

func TestJitterIsStableAndEndsBeforeTheNextTime(t *testing.T) {
	timetable, err := NewTimetable(v1alpha1.Cron{Schedule: "*/10 * * * *"})
	if err != nil {
		t.Fatal(err)
	}
	due := time.Date(2026, time.May, 4, 12, 0, 0, 0, time.UTC)
	delays := map[time.Duration]bool{}
	for range 200 {
		next := timetable.Next(due)
		for _, jitter := range []time.Duration{0, time.Second, 5 * time.Minute, 24 * time.Hour} {
			start := timetable.StartTime("some-uid", due, jitter)
			if start.Before(due) || !start.Before(next) || jitter > 0 && start.Sub(due) >= jitter {
				t.Fatalf("with jitter %s, %s starts at %s; the next time is %s", jitter, due, start, next)
			}
			if again := timetable.StartTime("some-uid", due, jitter); !again.Equal(start) {
				t.Fatalf("%s starts at %s and at %s", due, start, again)
			}
			delays[start.Sub(due)] = true
		}
		due = next
	}
	if len(delays) < 100 {
		t.Errorf("%d different delays of 400", len(delays))
	}
}

func TestJitterSpreadsSchedulesWithTheSameTime(t *testing.T) {
	timetable, err := NewTimetable(v1alpha1.Cron{Schedule: "0 2 * * *"})
	if err != nil {
		t.Fatal(err)
	}
	due := time.Date(2026, time.May, 4, 2, 0, 0, 0, time.UTC)
	perMinute := map[int]int{}
	for i := range 1000 {
		start := timetable.StartTime(types.UID(time.Duration(i).String()), due, 10*time.Minute)
		perMinute[int(start.Sub(due)/time.Minute)]++
	}
	for minute := range 10 {
		if count := perMinute[minute]; count < 60 || count > 140 {
			t.Errorf("%d of 1000 start in minute %d of 10", count, minute)
		}
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
			if !next.After(at) || next.Second() != 0 {
				t.Fatalf("%q: after %s comes %s", expression, at, next)
			}
			at = next
		}
	})
}
