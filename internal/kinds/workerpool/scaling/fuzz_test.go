package scaling

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
)

// Decide neither panics nor violates a guarantee for any stats or spec.
func FuzzDecideKeepsItsGuarantees(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 1))
	in := Observation{Now: testTime, Settings: randomSettings(r)}
	for range 20 {
		in = nextObservation(r, in)
		in.Memory = Decide(in).Memory
	}
	spec := []byte(`{"minReplicas":1,"maxReplicas":20,"scaleDown":{"window":"1m","maxStep":"20%","period":"10s"}}`)
	f.Add(spec, int64(1000), int64(30), int64(5000), int64(4000), int32(3), int32(10), int64(2_000))
	f.Fuzz(func(t *testing.T, spec []byte, backlog, inFlight, arrived, finished int64, replicas, concurrency int32, millis int64) {
		autoscaling := v1alpha1.Autoscaling{}
		if json.Unmarshal(spec, &autoscaling) != nil {
			return
		}
		in := sanitizeObservation(Observation{
			Now: testTime.Add(time.Duration(millis) * time.Millisecond), Settings: NewSettings(&autoscaling, concurrency),
			Replicas: replicas, Ready: replicas, PodStart: time.Duration(millis),
			Stats:  &BacklogStats{Backlog: backlog, Running: inFlight, Arrived: &arrived, Finished: &finished, OldestAge: time.Duration(arrived)},
			Memory: in.Memory,
		})
		if in.Settings.Suspended {
			return
		}
		require.Equal(t, "", findViolation(r, in, Decide(in)))
	})
}
