package schedule

import (
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"time"
	_ "time/tzdata" // so that time zones do not depend on where the operator or plugin runs

	"github.com/robfig/cron/v3"
	"k8s.io/apimachinery/pkg/types"
)

// A Timetable computes the times at which a Schedule is due.
type Timetable struct {
	cron     cron.Schedule
	location *time.Location
}

// referenceTime begins the five years in which an expression must be due once. They include a leap day.
var referenceTime = time.Date(2024, time.January, 1, 0, 0, 0, 0, time.UTC)

// ParseExpression parses a cron expression as the API server does for CronJobs, without @every: its times
// would depend on when it is evaluated.
func ParseExpression(expression string) (cron.Schedule, error) {
	switch {
	case strings.Contains(expression, "TZ"):
		return nil, errors.New("cannot contain TZ or CRON_TZ: use timeZone")
	case strings.HasPrefix(strings.TrimSpace(expression), "@every"):
		return nil, errors.New("cannot be @every: use a cron expression such as */10 * * * *")
	}
	parsed, err := cron.ParseStandard(expression)
	if err != nil {
		return nil, err
	}
	if parsed.Next(referenceTime).IsZero() {
		return nil, errors.New("is never due: no month has this day")
	}
	return parsed, nil
}

// LoadTimeZone returns the location of a time zone by its name in the IANA database. Local is not a time zone:
// it depends on where the operator runs. Without a name, it returns UTC.
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

// NewTimetable returns the times of an expression in a time zone.
func NewTimetable(expression, timeZone string) (*Timetable, error) {
	parsed, err := ParseExpression(expression)
	if err != nil {
		return nil, fmt.Errorf("schedule %w", err)
	}
	location, err := LoadTimeZone(timeZone)
	if err != nil {
		return nil, fmt.Errorf("timeZone %w", err)
	}
	return &Timetable{parsed, location}, nil
}

// Location returns the time zone.
func (t *Timetable) Location() *time.Location { return t.location }

// Next returns the first time after another one, in UTC. It returns the zero time if no time comes within five
// years. The times that a change to daylight saving time skips are left out, and those that the change
// back repeats are returned twice, because they are different times.
func (t *Timetable) Next(after time.Time) time.Time {
	next := t.cron.Next(after.In(t.location))
	if next.IsZero() {
		return time.Time{}
	}
	return next.UTC()
}

// StartTime returns when the run of a due time starts: later by a part of the jitter, which depends only on the
// Schedule and the time, and before the next time is due.
func (t *Timetable) StartTime(uid types.UID, due time.Time, jitter time.Duration) time.Time {
	if jitter <= 0 {
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
