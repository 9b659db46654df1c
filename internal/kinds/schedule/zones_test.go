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

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// clockChange is a change of the clocks, in all zones whose clocks show the same before and after it.
type clockChange struct {
	at    time.Time
	zones []*time.Location
}

// clockChanges returns the changes of the clocks of all zones of tzdata from 2020 to 2040. Some are only the end of a year.
func clockChanges(t *testing.T) []*clockChange {
	t.Helper()
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

// reading is what a clock shows.
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

// readClock reads the clock of a zone each minute after start until end.
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
