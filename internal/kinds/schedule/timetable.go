package schedule

import (
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"strings"
	"time"
	_ "time/tzdata" // so that time zones do not depend on where the operator or plugin runs

	"github.com/robfig/cron/v3"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// Timetable computes the times at which a Schedule is due.
type Timetable struct {
	expressions []expression
	location    *time.Location
}

// expression is one of the expressions of a Schedule.
type expression struct {
	cron *cron.SpecSchedule
	// runsAfterGap is true if a time that the clocks skip is due when they have changed. isDueOnce is true if a time that they repeat is
	// due only the first time.
	runsAfterGap, isDueOnce bool
}

// referenceTime begins the years in which an expression must be due once.
var referenceTime = time.Date(2024, time.January, 1, 0, 0, 0, 0, time.UTC)

// maxYears limits the search for the next time. The days of the week of 29 February repeat after 28 years, or 40 years around 2100.
const maxYears = 40

const (
	// separator is between the expressions of a Schedule, of which it has at most maxExpressions: each is searched for each time.
	separator      = ";"
	maxExpressions = 10
)

// CheckExpressions returns an error if a Schedule cannot have these expressions.
func CheckExpressions(expressions string) error {
	all := strings.Split(expressions, separator)
	if len(all) > maxExpressions {
		return fmt.Errorf("has %d expressions, and can have %d", len(all), maxExpressions)
	}
	for _, one := range all {
		if _, err := parseExpression(one); err != nil {
			if len(all) > 1 {
				return fmt.Errorf("%q: %w", strings.TrimSpace(one), err)
			}
			return err
		}
	}
	return nil
}

// parseExpression parses a cron expression as the API server does for CronJobs, without @every: its times
// would depend on when it is evaluated.
func parseExpression(expression string) (*cron.SpecSchedule, error) {
	if strings.Contains(expression, "TZ") {
		return nil, errors.New("cannot contain TZ or CRON_TZ: use timeZone")
	}
	parsed, err := cron.ParseStandard(strings.TrimSpace(expression))
	if err != nil {
		return nil, err
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return nil, errors.New("cannot be @every: use a cron expression such as */10 * * * *")
	}
	if nextOnClock(spec, referenceTime).IsZero() {
		return nil, errors.New("is never due: no month has this day")
	}
	return spec, nil
}

// LoadTimeZone returns the location of a time zone by its name in the IANA database; UTC without a name. Local is no time zone
// here: it depends on where the operator runs.
func LoadTimeZone(name string) (*time.Location, error) {
	if strings.EqualFold(name, "Local") {
		return nil, errors.New("must be the name of a time zone such as Europe/Berlin")
	}
	location, err := time.LoadLocation(name)
	if err != nil {
		return nil, errors.New("is not the name of a time zone such as Europe/Berlin")
	}
	return location, nil
}

// NewTimetable returns the times of expressions in a time zone.
func NewTimetable(of v1alpha1.Cron) (*Timetable, error) {
	if err := CheckExpressions(of.Schedule); err != nil {
		return nil, fmt.Errorf("schedule %w", err)
	}
	location, err := LoadTimeZone(of.TimeZone)
	if err != nil {
		return nil, fmt.Errorf("timeZone %w", err)
	}
	t := &Timetable{location: location}
	for one := range strings.SplitSeq(of.Schedule, separator) {
		parsed, err := parseExpression(one)
		if err != nil {
			return nil, fmt.Errorf("schedule %w", err)
		}
		isFixed := !followsElapsedTime(one)
		t.expressions = append(t.expressions, expression{
			cron: parsed, runsAfterGap: isFixed && of.InGap != v1alpha1.GapSkip, isDueOnce: isFixed && of.InOverlap != v1alpha1.OverlapBoth,
		})
	}
	return t, nil
}

// followsElapsedTime reports whether an expression is due in intervals, because it has a wildcard or a step in its minute or hour. An
// interval continues while the clocks change: the times that they skip did not pass, and the times that they repeat pass twice.
func followsElapsedTime(expression string) bool {
	fields := strings.Fields(expression)
	if len(fields) == 1 {
		return strings.EqualFold(fields[0], "@hourly")
	}
	return strings.ContainsAny(fields[0]+fields[1], "*?/")
}

// Location returns the time zone.
func (t *Timetable) Location() *time.Location { return t.location }

// Next returns the first time after another one, in UTC. It returns the zero time if no time comes within 40 years.
func (t *Timetable) Next(after time.Time) time.Time {
	for next := range t.Times(after) {
		return next
	}
	return time.Time{}
}

// Times returns the times after another one, in UTC, as long as the next comes within 40 years. A time of several expressions is one.
func (t *Timetable) Times(after time.Time) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		next := make([]time.Time, len(t.expressions))
		for {
			var first time.Time
			for i := range t.expressions {
				if !next[i].After(after) { // also without one; the others are known from the time before
					next[i] = t.expressions[i].next(after, t.location)
				}
				if first.IsZero() || !next[i].IsZero() && next[i].Before(first) {
					first = next[i]
				}
			}
			if first.IsZero() || !yield(first) {
				return
			}
			after = first
		}
	}
}

// next is Timetable.Next for one expression.
//
// Between two changes of its clocks a zone is a constant distance from UTC, so each of these periods is searched on a clock
// without changes. The library's own search steps through days by local midnights, of which some do not exist.
func (e *expression) next(after time.Time, location *time.Location) time.Time {
	last := after.Year() + maxYears
	for from := after.Add(1).In(location); from.Year() <= last; {
		change, _ := from.ZoneBounds()
		end := endOfPeriod(from)
		distance := distanceFromUTC(from)
		onClock := from.UTC().Add(distance)
		if !change.IsZero() {
			stopped := change.UTC().Add(distanceFromUTC(change.Add(-1))) // where the clock was when it was set
			started := change.UTC().Add(distance)                        // what it was set to
			minute := ceilMinute(started)
			switch {
			case stopped.Before(started) && e.runsAfterGap && !onClock.After(minute):
				if skipped := nextOnClock(e.cron, stopped); !skipped.IsZero() && skipped.Before(started) {
					return minute.Add(-distance)
				}
			case started.Before(stopped) && e.isDueOnce && onClock.Before(stopped):
				onClock = stopped
			}
		}
		due := nextOnClock(e.cron, onClock)
		if due.IsZero() {
			return time.Time{}
		}
		if next := due.Add(-distance); end.IsZero() || next.Before(end) {
			return next
		}
		from = end
	}
	return time.Time{} // each selected time is skipped by a change of the clocks
}

func distanceFromUTC(at time.Time) time.Duration {
	_, offset := at.Zone()
	return time.Duration(offset) * time.Second
}

func ceilMinute(at time.Time) time.Time { return at.Add(time.Minute - 1).Truncate(time.Minute) }

// endOfPeriod returns a time until which the clocks of a zone do not change; zero if they never change again. ZoneBounds ends the
// years after those that tzdata lists, which are computed from a rule, after 365 days: on the last day of a leap year its end is
// past.
func endOfPeriod(from time.Time) time.Time {
	_, end := from.ZoneBounds()
	if !end.IsZero() && !end.After(from) {
		return from.Add(time.Hour)
	}
	return end
}

// nextOnClock returns the first full minute at or after a time that an expression selects, on a clock without changes, as that of
// UTC is; zero without one.
func nextOnClock(spec *cron.SpecSchedule, from time.Time) time.Time {
	selects := func(field uint64, value int) bool { return field&(1<<value) != 0 }
	const isWildcard = 1 << 63 // of the library
	at := ceilMinute(from)
	for last := at.Year() + maxYears; at.Year() <= last; {
		year, month, day := at.Date()
		inMonth, inWeek := selects(spec.Dom, day), selects(spec.Dow, int(at.Weekday()))
		selectsDay := inMonth || inWeek
		if (spec.Dom|spec.Dow)&isWildcard != 0 {
			selectsDay = inMonth && inWeek
		}
		switch {
		case !selects(spec.Month, int(month)):
			at = time.Date(year, month+1, 1, 0, 0, 0, 0, time.UTC)
		case !selectsDay:
			at = time.Date(year, month, day+1, 0, 0, 0, 0, time.UTC)
		case !selects(spec.Hour, at.Hour()):
			at = time.Date(year, month, day, at.Hour()+1, 0, 0, 0, time.UTC)
		case !selects(spec.Minute, at.Minute()):
			at = at.Add(time.Minute)
		default:
			return at
		}
	}
	return time.Time{}
}

// StartTime returns when the run of a due time starts: later by a part of the jitter, which depends only on the Schedule and
// the time, and before the next time is due.
func (t *Timetable) StartTime(uid types.UID, due time.Time, jitter time.Duration) time.Time {
	if jitter == 0 {
		return due
	}
	if next := t.Next(due); !next.IsZero() {
		jitter = min(jitter, next.Sub(due))
	}
	digest := fnv.New64a()
	_, _ = fmt.Fprintf(digest, "%s/%d", uid, due.Unix())
	random := time.Duration(digest.Sum64() >> 1)
	return due.Add((random % max(jitter, time.Second)).Truncate(time.Second)) // the precision of the API
}
