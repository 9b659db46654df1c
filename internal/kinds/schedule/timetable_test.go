package schedule

import (
	"archive/zip"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
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
		"@hourly continues while the clocks go back":  {berlin("@hourly"), "2026-10-24T23:45:00Z", "2026-10-25T02:00+02:00 2026-10-25T02:00+01:00"},
		"a day without midnight is a day like others": {in("Africa/Cairo", "0 9 * * 5"), "2027-04-29T00:00:00Z", "2027-04-30T09:00+03:00"},
		"a month with a day without midnight":         {in("America/Santiago", "0 9 * 9 6"), "2027-09-04T14:00:00Z", "2027-09-11T09:00-03:00"},
		"the leap day, which 2100 does not have":      {in("", "0 0 29 2 *"), "2092-03-01T00:00:00Z", "2096-02-29T00:00Z 2104-02-29T00:00Z"},
		"the last day of a month":                     {in("", "0 0 31 * *"), "2026-01-31T12:00:00Z", "2026-03-31T00:00Z 2026-05-31T00:00Z"},
		"a macro":                                     {in("", "@monthly"), "2026-01-31T12:00:00Z", "2026-02-01T00:00Z 2026-03-01T00:00Z"},
		"ten expressions":                             {in("", strings.Repeat("@yearly;", 9)+"0 0 1 2 *"), "2026-01-01T00:00:00Z", "2026-02-01T00:00Z"},
		"the summer after a leap year, decades ahead": {berlin("0 9 1 6 *"), "2040-12-31T22:00:00Z", "2041-06-01T09:00+02:00"},
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
		"too many expressions":   {strings.Repeat("0 2 * * *;", 10) + "0 2 * * *", "", "schedule has 11 expressions, and can have 10"},
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
			require.True(t, !start.Before(due) && start.Before(next) && (jitter <= 0 || start.Sub(due) < jitter), "%s starts at %s", due, start)
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

// clockChange is a change of the clocks, in all zones whose clocks show the same before and after it.
type clockChange struct {
	at    time.Time
	zones []*time.Location
}

// clockChanges returns the changes of the clocks of all zones of tzdata from 2020 to 2040. Some are only the end of a year.
func clockChanges(t *testing.T) []*clockChange {
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	require.NoError(t, err)
	archive, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	require.NoError(t, err)
	defer archive.Close()
	type key struct {
		at            int64
		before, after time.Duration
	}
	var changes []*clockChange
	known := map[key]*clockChange{}
	for _, file := range archive.File {
		if file.FileInfo().IsDir() {
			continue
		}
		zone, err := time.LoadLocation(file.Name)
		require.True(t, err == nil, "%s: %v", file.Name, err)
		for at := time.Date(2020, time.January, 1, 0, 0, 0, 0, time.UTC).In(zone); !at.IsZero() && at.Year() <= 2040; at = endOfPeriod(at) {
			k := key{at.Unix(), distanceFromUTC(at.Add(-1)), distanceFromUTC(at)}
			if known[k] == nil {
				known[k] = &clockChange{at: at}
				changes = append(changes, known[k])
			}
			known[k].zones = append(known[k].zones, zone)
		}
	}
	return changes
}

type reading struct {
	month, day, weekday, hour, minute int
}

// isDueAt reports whether an expression selects a minute, by its local date and time.
func isDueAt(spec *cron.SpecSchedule, r reading) bool {
	selects := func(field uint64, value int) bool { return field>>value&1 == 1 }
	if !selects(spec.Minute, r.minute) || !selects(spec.Hour, r.hour) || !selects(spec.Month, r.month) {
		return false
	}
	isEveryDayOfMonth, isEveryDayOfWeek := spec.Dom>>63 == 1, spec.Dow>>63 == 1
	inMonth, inWeek := selects(spec.Dom, r.day), selects(spec.Dow, r.weekday)
	if isEveryDayOfMonth || isEveryDayOfWeek {
		return inMonth && inWeek
	}
	return inMonth || inWeek
}

// randomExpression returns an expression that is often due around a time.
func randomExpression(rng *rand.Rand, around time.Time) string {
	pick := func(choices ...string) string { return choices[rng.IntN(len(choices))] }
	hour := (around.Hour() + 22 + rng.IntN(5)) % 24
	return strings.Join([]string{
		pick("0", "30", "*", "*/15", "59", "1", "7,37", "50-59/3"),
		pick(fmt.Sprint(hour), fmt.Sprint(hour), "*", "*/2", "0", "23", fmt.Sprintf("%d,12", hour), "0-3", "22-23"),
		pick("*", "*", fmt.Sprint(around.Day()), "1", "*/2", "28-31", "15-31"),
		pick("*", "*", fmt.Sprint(int(around.Month())), "*/2", "3,4,9,10,11"),
		pick("*", "*", fmt.Sprint(int(around.Weekday())), "0", "6", "1-5", fmt.Sprint((int(around.Weekday())+1)%7)),
	}, " ")
}

// clockMinute is a minute of a zone: what its clock shows, whether it has shown that before, and what it has skipped just before.
type clockMinute struct {
	at         time.Time
	shows      reading
	isRepeated bool
	skipped    []reading
}

func readClock(zone *time.Location, start, end time.Time) []clockMinute {
	onClock := func(at time.Time) time.Time {
		local := at.In(zone)
		return time.Date(local.Year(), local.Month(), local.Day(), local.Hour(), local.Minute(), 0, 0, time.UTC)
	}
	read := func(clock time.Time) reading {
		return reading{int(clock.Month()), clock.Day(), int(clock.Weekday()), clock.Hour(), clock.Minute()}
	}
	var minutes []clockMinute
	seen := map[time.Time]bool{}
	warmUp := start.Add(-30 * time.Hour).Truncate(time.Minute) // to have seen the times that are repeated after start
	expected := onClock(warmUp)
	for at := warmUp; !at.After(end); at = at.Add(time.Minute) {
		now := onClock(at)
		minute := clockMinute{at: at.UTC(), shows: read(now), isRepeated: seen[now]}
		for ; expected.Before(now); expected = expected.Add(time.Minute) {
			minute.skipped = append(minute.skipped, read(expected))
		}
		if at.After(start) {
			minutes = append(minutes, minute)
		}
		seen[now], expected = true, now.Add(time.Minute)
	}
	return minutes
}

// dueMinutes goes through the minutes as a person who reads the clock: it is the definition that Next implements faster.
func dueMinutes(of v1alpha1.Cron, one string, spec *cron.SpecSchedule, minutes []clockMinute) []time.Time {
	fields := strings.Fields(one)
	isInterval := strings.ContainsAny(fields[0], "*/") || strings.ContainsAny(fields[1], "*/")
	var due []time.Time
	for i := range minutes {
		minute := &minutes[i]
		isDue := isDueAt(spec, minute.shows) && (isInterval || of.InOverlap == v1alpha1.OverlapBoth || !minute.isRepeated)
		for _, skipped := range minute.skipped {
			isDue = isDue || !isInterval && of.InGap != v1alpha1.GapSkip && isDueAt(spec, skipped)
		}
		if isDue {
			due = append(due, minute.at)
		}
	}
	return due
}

// SCHEDULE_EXPRESSIONS is the number of Schedules at each change of the clocks, in turn in all zones that have it; 0: a random part.
func TestNextIsTheNextMinuteThatTheExpressionSelectsAroundEveryChangeOfTheClocks(t *testing.T) {
	changes := clockChanges(t)
	each := testbuilder.NumberFromEnv(t, "SCHEDULE_EXPRESSIONS", 0)
	seed := uint64(testbuilder.NumberFromEnv(t, "SCHEDULE_SEED", int(time.Now().Unix())))
	rng := rand.New(rand.NewPCG(seed, 0))
	if each == 0 {
		rng.Shuffle(len(changes), func(i, j int) { changes[i], changes[j] = changes[j], changes[i] })
		changes, each = changes[:100], 5
	}
	t.Logf("SCHEDULE_SEED=%d, %d Schedules at each of %d changes", seed, each, len(changes))
	for _, change := range changes {
		start, end := change.at.Add(-50*time.Hour), change.at.Add(50*time.Hour)
		for i := range each {
			zone := change.zones[i%len(change.zones)]
			compareTimes(t, rng, zone, change.at.In(zone), start, end)
		}
	}
}

// clocks are the minutes of the last change that was compared.
var clocks = map[string][]clockMinute{}

// compareTimes compares the times of a random Schedule with the definition.
func compareTimes(t *testing.T, rng *rand.Rand, zone *time.Location, change, start, end time.Time) {
	t.Helper()
	expressions := []string{randomExpression(rng, change)}
	for rng.IntN(3) == 0 && len(expressions) < maxExpressions {
		expressions = append(expressions, randomExpression(rng, change))
	}
	of := v1alpha1.Cron{
		Schedule: strings.Join(expressions, " ; "), TimeZone: zone.String(),
		InGap:     []v1alpha1.ScheduleGap{"", v1alpha1.GapSkip, v1alpha1.GapRunAfter}[rng.IntN(3)],
		InOverlap: []v1alpha1.ScheduleOverlap{"", v1alpha1.OverlapFirst, v1alpha1.OverlapBoth}[rng.IntN(3)],
	}
	timetable, err := NewTimetable(of)
	if err != nil {
		return // an expression selects 30 February
	}
	key := fmt.Sprint(zone, change.Unix())
	if clocks[key] == nil {
		if len(clocks) > 100 {
			clear(clocks)
		}
		clocks[key] = readClock(zone, start, end)
	}
	var want, got []time.Time
	for i, one := range expressions {
		want = append(want, dueMinutes(of, one, timetable.expressions[i].cron, clocks[key])...)
	}
	slices.SortFunc(want, time.Time.Compare)
	want = slices.Compact(want) // times that coincide are one
	for at := range timetable.Times(start) {
		if at.After(end) {
			break
		}
		got = append(got, at)
	}
	require.True(t, slices.Equal(got, want), "%+v around %v:\n got %v\nwant %v", of, change, got, want)
	for range 20 { // from any moment, not only from times that are due
		after := start.Add(time.Duration(rng.Int64N(int64(end.Sub(start)))))
		following, _ := slices.BinarySearchFunc(want, after.Add(1), time.Time.Compare)
		if next := timetable.Next(after); following < len(want) {
			require.True(t, next.Equal(want[following]), "%+v: after %v, %v is due, want %v", of, after, next, want[following])
		}
	}
}
