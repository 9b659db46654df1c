package view

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
)

func pointsAt(value float64, minutes ...int) []Point {
	var points []Point
	for _, minute := range minutes {
		points = append(points, Point{Time: at(minute).Time, Value: value})
	}
	return points
}

func TestChartsBeginWithTheHistoryOfPrometheus(t *testing.T) {
	q := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "mail", Namespace: "a"}}
	e := NewEntry(q)
	past := NewPast(e, map[string][]Point{"ready": pointsAt(7, -60, -59, -58), "in_flight": pointsAt(2, -60, -59, -58), "other": pointsAt(9, -60)}, time.Hour, time.Minute)
	seen := []Sample{{Time: at(-59).Time, Backlog: new(float64(99))}, {Time: at(-2).Time, Backlog: new(float64(3))}, {Time: at(0).Time, Backlog: new(float64(4))}}
	chart := NewQueue(e, q, seen, past).Backlog
	if !chart.Begin.Equal(at(-60).Time) || chart.Max != "7" || chart.Lines[0].Last != "4" || chart.Lines[1].Last != Unknown {
		t.Errorf("%+v", chart)
	}
}

func TestTimesWithoutValuesInPrometheusAreGaps(t *testing.T) {
	wp := &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Name: "mailers", Namespace: "a"}}
	e := NewEntry(wp)
	past := NewPast(e, map[string][]Point{"ready": pointsAt(3, -60, -59, -30, -29), "backlog": pointsAt(5, -60)}, time.Hour, time.Minute)
	pool := NewPool(e, wp, nil, past, testTime)
	if path := pool.Workers.Lines[0].Path; strings.Count(path, "M") != 2 {
		t.Errorf("the line of ready workers has no gap: %s", path)
	}
	require.True(t, len(past.Samples) == 5 && *past.Samples[0].Backlog == 5 && past.Samples[2].Ready == nil, "%+v", past.Samples)
}
