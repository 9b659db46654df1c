package view

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
)

// Run is a run of a sequence, a session or a Schedule.
type Run struct {
	*Entry

	Number             int32
	Due, Start, Finish time.Time
	// Request is the ID of the request; empty if the run is of a timetable.
	Request string
	// IsGone is set if only the page remembers the run: its object was deleted, or has run again.
	IsGone bool
}

// NewRun returns the latest run of an object that runs.
func NewRun(e *Entry) (run Run, isRun bool) {
	run.Entry = e
	var status *v1alpha1.RunStatus
	switch object := e.Object.(type) {
	case *v1alpha1.SequentialJob:
		status, run.Request = &object.Status.RunStatus, cleanLine(object.Annotations[v1alpha1.AnnotationRerunID])
	case *v1alpha1.AgenticSession:
		status, run.Request = &object.Status.RunStatus, cleanLine(object.Annotations[v1alpha1.AnnotationRerunID])
	default:
		return run, false
	}
	run.Number, run.Start, run.Finish = status.Run, timeOf(status.StartTime), timeOf(status.CompletionTime)
	_, run.Due = ScheduleOf(e)
	return run, true
}

// begin orders runs; zero if unknown.
func (r *Run) begin() time.Time {
	for _, t := range []time.Time{r.Start, r.Due, r.Created} {
		if !t.IsZero() {
			return t
		}
	}
	return time.Time{}
}

// Duration is how long the run took, or has taken; 0 if it has not started.
func (r *Run) Duration(now time.Time) time.Duration {
	switch {
	case r.Start.IsZero():
		return 0
	case !r.Finish.IsZero():
		now = r.Finish
	}
	return max(0, now.Sub(r.Start)).Round(time.Second)
}

// SeriesKey is the subject of a series of runs: a Schedule, or a sequence or session without a Schedule. UID distinguishes it from
// earlier objects with the same name.
type SeriesKey struct {
	Kind            *Kind
	Namespace, Name string
	UID             types.UID
}

// SeriesOf returns the series of an object.
func SeriesOf(e *Entry) SeriesKey {
	if owner := scheduleReference(e); owner != nil {
		return SeriesKey{Schedules, e.Namespace, cleanLine(owner.Name), owner.UID}
	}
	key := SeriesKey{Kind: e.Kind, Namespace: e.Namespace, Name: e.Name}
	if object, isObject := e.Object.(metav1.Object); isObject {
		key.UID = object.GetUID()
	}
	return key
}

// maxRuns is the number of runs that a page lists.
const maxRuns = 100

// Runs returns the known runs of a series, the newest first. Those that started since the page started may be remembered runs.
func (s *State) Runs(key SeriesKey) []Run {
	return s.runsOf(func(other SeriesKey) bool { return other == key })[key]
}

// runsOf returns the known runs of the selected series.
func (s *State) runsOf(isSelected func(SeriesKey) bool) map[SeriesKey][]Run {
	all := map[SeriesKey][]Run{}
	for _, kind := range []*Kind{Sequences, Sessions} {
		for _, e := range s.Entries[kind] {
			if key := SeriesOf(e); isSelected(key) {
				if run, isRun := NewRun(e); isRun {
					all[key] = append(all[key], run)
				}
			}
		}
	}
	for key, runs := range s.Seen {
		if isSelected(key) {
			all[key] = append(all[key], runs...)
		}
	}
	for key, runs := range all {
		slices.SortFunc(runs, func(a, b Run) int {
			return cmp.Or(b.begin().Compare(a.begin()), cmp.Compare(b.Number, a.Number), cmp.Compare(a.Name, b.Name))
		})
		all[key] = runs[:min(len(runs), maxRuns)]
	}
	return all
}

func anySeries(SeriesKey) bool { return true }

// Bar is a run in a row of bars.
type Bar struct {
	Run

	// Height is 1 to MaxBarHeight: its share of the longest run.
	Height int
	Label  string
}

// MaxBarHeight is the height of the longest run of a row.
const MaxBarHeight = 8

// NewBars returns a bar for each of the latest runs, the oldest first. The runs are the newest first.
func NewBars(runs []Run, now time.Time) []Bar {
	const maxBars = 30
	runs = runs[:min(len(runs), maxBars)]
	longest := time.Second
	for i := range runs {
		longest = max(longest, runs[i].Duration(now))
	}
	bars := make([]Bar, 0, len(runs))
	for _, run := range slices.Backward(runs) {
		label := fmt.Sprintf("%s: %s", run.Name, run.Status)
		if run.Number > 1 {
			label += fmt.Sprintf(", run %d", run.Number)
		}
		if !run.Start.IsZero() {
			label += ", " + run.Start.UTC().Format(time.DateTime) + " UTC"
		}
		if !run.Finish.IsZero() {
			label += ", " + render.FormatRounded(run.Duration(now))
		}
		height := math.Ceil(float64(run.Duration(now)) / float64(longest) * MaxBarHeight)
		bars = append(bars, Bar{Run: run, Height: max(1, int(height)), Label: label})
	}
	return bars
}

// Series is a row of the overview: a Schedule, sequence or session with its latest runs.
type Series struct {
	Of   *Entry
	Bars []Bar
	Last Run
	Next time.Time
	// Took is the duration of the last run that ended.
	Took string

	key SeriesKey
}

// newSeries returns the Schedules, and then the objects without a Schedule, each in the order of their latest run.
func newSeries(state *State, runs map[SeriesKey][]Run, now time.Time) []Series {
	var all []Series
	known := map[SeriesKey]*Entry{}
	for _, e := range state.Entries[Schedules] {
		known[SeriesOf(e)] = e
	}
	for key, runs := range runs {
		s := Series{Of: runs[0].Entry, Last: runs[0], Took: Unknown, key: key}
		if key.Kind == Schedules {
			s.Of = &Entry{Kind: Schedules, Namespace: key.Namespace, Name: key.Name}
			e := known[key]
			if e == nil && s.Last.IsGone {
				continue // its Schedule was deleted
			}
			if e != nil {
				s.Of = e
				if object, isSchedule := e.Object.(*v1alpha1.Schedule); isSchedule && !object.Spec.Suspend {
					s.Next = timeOf(object.Status.NextScheduleTime)
				}
			}
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b Series) int {
		return cmp.Or(cmp.Compare(rank(a.Of.Kind), rank(b.Of.Kind)), b.Last.begin().Compare(a.Last.begin()), cmp.Compare(a.Of.Namespace, b.Of.Namespace), cmp.Compare(a.Of.Name, b.Of.Name))
	})
	all = all[:min(len(all), maxSeries)]
	for i := range all {
		runs := runs[all[i].key]
		all[i].Bars = NewBars(runs, now)
		if ended := slices.IndexFunc(runs, func(run Run) bool { return !run.Finish.IsZero() && !run.Start.IsZero() }); ended >= 0 {
			all[i].Took = render.FormatRounded(runs[ended].Duration(now))
		}
	}
	return all
}

func rank(kind *Kind) int {
	if kind == Schedules {
		return 0
	}
	return 1
}
