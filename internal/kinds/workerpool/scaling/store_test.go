package scaling

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

func TestMemoryIsRestoredFromTheStatus(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 0))
	in := Observation{Now: testTime, Settings: randomSettings(r)}
	for i := range 500 {
		in = nextObservation(r, in)
		d := Decide(in)
		in.Memory, in.Replicas = d.Memory, d.Applied

		raw, err := json.Marshal(StoreMemory(d.Memory))
		if err != nil {
			t.Fatal(err)
		}
		if len(raw) > 2500 {
			t.Fatalf("after %d decisions the memory has %d bytes: %s", i, len(raw), raw)
		}
		stored := &v1alpha1.ScaleMemory{}
		if err := json.Unmarshal(raw, stored); err != nil {
			t.Fatal(err)
		}
		want := d.Memory
		want.Rates.LatestRate = 0 // measured again with the next stats
		near := cmp.Options{
			cmpopts.EquateApprox(0, 0.001), cmpopts.EquateApproxTime(time.Second), cmpopts.EquateEmpty(),
		}
		if diff := cmp.Diff(want, RestoreMemory(stored), near); diff != "" {
			t.Fatalf("after %d decisions the restored memory differs (-want, +got):\n%s", i, diff)
		}
	}
}

func TestMissingMemoryIsEmpty(t *testing.T) {
	if diff := cmp.Diff(Memory{}, RestoreMemory(nil)); diff != "" {
		t.Errorf("the memory is not empty (-want, +got):\n%s", diff)
	}
}
