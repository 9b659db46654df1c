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
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// clockChange is a change of the clocks of a zone.
type clockChange struct {
	zone *time.Location
	at   time.Time
}

// clockChanges returns the changes of the clocks of all zones of tzdata from 2020 to 2040.
func clockChanges(t *testing.T) []clockChange {
	t.Helper()
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	archive, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	var changes []clockChange
	for _, file := range archive.File {
		if file.FileInfo().IsDir() {
			continue
		}
		zone, err := time.LoadLocation(file.Name)
		if err != nil {
			t.Fatalf("%s: %v", file.Name, err)
		}
		for at := time.Date(2020, time.January, 1, 0, 0, 0, 0, time.UTC).In(zone); !at.IsZero() && at.Year() <= 2040; at = endOfPeriod(at) {
			changes = append(changes, clockChange{zone, at}) // some are only the end of a year
		}
	}
	return changes
}

// isDueAt reports whether an expression selects a minute, by its local date and time.
func isDueAt(spec *cron.SpecSchedule, local time.Time) bool {
	selects := func(field uint64, value int) bool { return field>>value&1 == 1 }
	if !selects(spec.Minute, local.Minute()) || !selects(spec.Hour, local.Hour()) || !selects(spec.Month, int(local.Month())) {
		return false
	}
	isEveryDayOfMonth, isEveryDayOfWeek := spec.Dom>>63 == 1, spec.Dow>>63 == 1
	inMonth, inWeek := selects(spec.Dom, local.Day()), selects(spec.Dow, int(local.Weekday()))
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

// dueMinutes goes through the minutes after start until end as a person who reads the clock of a zone: it is the definition that Next
// implements faster.
func dueMinutes(of v1alpha1.Cron, one string, spec *cron.SpecSchedule, zone *time.Location, start, end time.Time) []time.Time {
	fields := strings.Fields(one)
	isInterval := strings.ContainsAny(fields[0], "*/") || strings.ContainsAny(fields[1], "*/")
	onClock := func(at time.Time) time.Time {
		local := at.In(zone)
		return time.Date(local.Year(), local.Month(), local.Day(), local.Hour(), local.Minute(), 0, 0, time.UTC)
	}
	var due []time.Time
	seen := map[time.Time]bool{}
	warmUp := start.Add(-30 * time.Hour).Truncate(time.Minute) // to have seen the times that are repeated after start
	expected := onClock(warmUp)
	for at := warmUp; !at.After(end); at = at.Add(time.Minute) {
		now := onClock(at)
		isDue := isDueAt(spec, now) && (isInterval || of.InOverlap == v1alpha1.OverlapBoth || !seen[now])
		for skipped := expected; skipped.Before(now) && !isInterval && of.InGap != v1alpha1.GapSkip; skipped = skipped.Add(time.Minute) {
			isDue = isDue || isDueAt(spec, skipped)
		}
		if isDue && at.After(start) {
			due = append(due, at.UTC())
		}
		seen[now], expected = true, now.Add(time.Minute)
	}
	return due
}

func TestNextIsTheNextMinuteThatTheExpressionSelectsAroundEveryChangeOfTheClocks(t *testing.T) {
	changes := clockChanges(t)
	runs := testbuilder.NumberFromEnv(t, "SCHEDULE_CHANGES", 300)
	seed := uint64(testbuilder.NumberFromEnv(t, "SCHEDULE_SEED", int(time.Now().Unix())))
	t.Logf("SCHEDULE_SEED=%d, %d of %d changes", seed, runs, len(changes))
	rng := rand.New(rand.NewPCG(seed, 0))
	for i := range runs {
		change := changes[i%len(changes)]
		if runs < len(changes) {
			change = changes[rng.IntN(len(changes))]
		}
		expressions := []string{randomExpression(rng, change.at)}
		for rng.IntN(3) == 0 {
			expressions = append(expressions, randomExpression(rng, change.at))
		}
		expressions = expressions[:min(len(expressions), maxExpressions)]
		of := v1alpha1.Cron{
			Schedule: strings.Join(expressions, " ; "), TimeZone: change.zone.String(),
			InGap:     []v1alpha1.ScheduleGap{"", v1alpha1.GapSkip, v1alpha1.GapRunAfter}[rng.IntN(3)],
			InOverlap: []v1alpha1.ScheduleOverlap{"", v1alpha1.OverlapFirst, v1alpha1.OverlapBoth}[rng.IntN(3)],
		}
		timetable, err := NewTimetable(of)
		if err != nil {
			continue // an expression selects 30 February
		}
		start, end := change.at.Add(-50*time.Hour), change.at.Add(50*time.Hour)
		var want []time.Time
		for i, one := range expressions {
			want = append(want, dueMinutes(of, one, timetable.expressions[i].cron, change.zone, start, end)...)
		}
		slices.SortFunc(want, time.Time.Compare)
		want = slices.Compact(want) // times that coincide are one
		var got []time.Time
		for at := timetable.Next(start); !at.IsZero() && !at.After(end); at = timetable.Next(at) {
			got = append(got, at)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%+v around %v:\n got %v\nwant %v", of, change.at, got, want)
		}
		for range 20 { // from any moment, not only from times that are due
			after := start.Add(time.Duration(rng.Int64N(int64(end.Sub(start)))))
			following, _ := slices.BinarySearchFunc(want, after.Add(1), time.Time.Compare)
			if next := timetable.Next(after); following < len(want) && !next.Equal(want[following]) {
				t.Fatalf("%+v: after %v, %v is due, want %v", of, after, next, want[following])
			}
		}
	}
}

func TestDaysWithoutMidnightAreDaysLikeOthers(t *testing.T) {
	for _, row := range []struct{ expression, zone, after, want string }{
		{"0 9 * * 5", "Africa/Cairo", "2027-04-29T00:00:00Z", "2027-04-30T09:00:00+03:00"},
		{"30 18 * * 4", "Africa/Cairo", "2027-04-29T17:00:00Z", "2027-05-06T18:30:00+03:00"},
		{"0 9 30 4 *", "Africa/Cairo", "2027-01-01T00:00:00Z", "2027-04-30T09:00:00+03:00"},
		{"0 9 28 3 *", "Asia/Beirut", "2027-01-01T00:00:00Z", "2027-03-28T09:00:00+03:00"},
		{"0 9 * 9 6", "America/Santiago", "2027-09-04T14:00:00Z", "2027-09-11T09:00:00-03:00"},
		{"0 9 * 3 6", "America/Havana", "2027-03-13T15:00:00Z", "2027-03-20T09:00:00-04:00"},
	} {
		if got := timesAfter(t, row.expression, row.zone, row.after, 1)[0]; got != row.want {
			t.Errorf("after %s, %q in %s is due at %s, want %s", row.after, row.expression, row.zone, got, row.want)
		}
	}
}

func TestTheNextLeapDayIsFoundAlsoAroundAYearWithoutOne(t *testing.T) {
	got := timesAfter(t, "0 0 29 2 *", "UTC", "2096-03-01T00:00:00Z", 1)[0]
	if want := "2104-02-29T00:00:00Z"; got != want {
		t.Errorf("the leap day after 2096 is %v, want %v: 2100 has none", got, want)
	}
}
