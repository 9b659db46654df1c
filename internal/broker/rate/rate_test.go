package rate

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func timeAt(d time.Duration) time.Time { return noon.Add(d) }

func TestTakeSlots(t *testing.T) {
	const ms = time.Millisecond
	tenth := Limit{Interval: 100 * ms, Burst: 1}
	for name, row := range map[string]struct {
		limit  Limit
		next   time.Duration
		number int
		want   SlotGrant
	}{
		"the first job begins at once": {
			tenth, -time.Hour, 1, SlotGrant{Slots: []time.Time{timeAt(0)}, State: SharedState{timeAt(0)}},
		},
		"slots that come soon are taken": {
			tenth, 0, 9, SlotGrant{Slots: []time.Time{timeAt(0), timeAt(100 * ms), timeAt(200 * ms)}, State: SharedState{timeAt(300 * ms)}},
		},
		"no more than asked for": {
			tenth, 0, 2, SlotGrant{Slots: []time.Time{timeAt(0), timeAt(100 * ms)}, State: SharedState{timeAt(200 * ms)}},
		},
		"a slot that comes late is waited for": {
			tenth, 250 * ms, 1, SlotGrant{State: SharedState{timeAt(250 * ms)}, RetryTime: timeAt(50 * ms)},
		},
		"a slot that is a little late is taken, and delays no other": {
			tenth, -20 * ms, 2, SlotGrant{Slots: []time.Time{timeAt(0), timeAt(80 * ms)}, State: SharedState{timeAt(180 * ms)}},
		},
		"of slots that passed unused, without a burst, only the last can be taken": {
			tenth, -time.Second, 2, SlotGrant{Slots: []time.Time{timeAt(0), timeAt(0)}, State: SharedState{timeAt(100 * ms)}},
		},
		"as many as the burst are": {
			Limit{100 * ms, 3}, -time.Hour, 9, SlotGrant{
				Slots: []time.Time{timeAt(0), timeAt(0), timeAt(0), timeAt(100 * ms), timeAt(200 * ms)}, State: SharedState{timeAt(300 * ms)},
			},
		},
		"a time left from a slower limit is not waited for": {
			tenth, time.Hour, 1, SlotGrant{State: SharedState{timeAt(300 * ms)}, RetryTime: timeAt(100 * ms)},
		},
		"one job a minute": {
			Limit{time.Minute, 1}, -time.Hour, 5, SlotGrant{Slots: []time.Time{timeAt(0)}, State: SharedState{timeAt(time.Minute - 100*ms)}},
		},
		"the next one a minute later": {
			Limit{time.Minute, 1}, time.Minute, 5, SlotGrant{State: SharedState{timeAt(time.Minute)}, RetryTime: timeAt(time.Minute - SlotLeadTime)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(row.want, row.limit.TakeSlots(SharedState{timeAt(row.next)}, noon, row.number)); diff != "" {
				t.Errorf("grant (-want +got):\n%s", diff)
			}
		})
	}
}

// Workers come and go, and the limit changes. In each window of 10 s no more jobs begin
// than the highest limit in it lets, and with always something to do hardly fewer.
func TestRateHoldsForAnyWorkersAndChanges(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 1))
		var begun []time.Time
		state, now := SharedState{}, noon
		limit := Limit{Interval: 10 * time.Millisecond, Burst: 1}
		changed := timeAt(30 * time.Second)
		for now.Before(timeAt(time.Minute)) {
			if !now.Before(changed) {
				limit.Interval = 20 * time.Millisecond
			}
			grant := limit.TakeSlots(state, now, 1+random.IntN(limit.SlotsPerRequest()))
			state = grant.State
			begun = append(begun, grant.Slots...)
			// Some worker asks at least every 50 ms.
			now = now.Add(time.Duration(random.Int64N(int64(50 * time.Millisecond))))
		}
		for start := time.Duration(0); start <= 50*time.Second; start += 100 * time.Millisecond {
			n, want := 0, 1000
			for _, slot := range begun {
				if !slot.Before(timeAt(start)) && slot.Before(timeAt(start+10*time.Second)) {
					n++
				}
			}
			switch {
			case start >= 30*time.Second:
				want = 500
			case start > 20*time.Second:
				continue // under both
			}
			if n > want*102/100 || n < want*98/100 {
				t.Fatalf("seed %d: %d jobs begin within 10 s of %s, the limit is %d", seed, n, start, want)
			}
		}
	}
}

func FuzzTakeSlots(f *testing.F) {
	f.Add(int64(time.Second), 3, int64(0), 5)
	f.Fuzz(func(t *testing.T, interval int64, burst int, next int64, number int) {
		l := Limit{Interval: time.Duration(1 + uint64(interval)%uint64(time.Hour)), Burst: 1 + int(uint(burst)%1000)}
		number = int(uint(number) % 1000)
		g := l.TakeSlots(SharedState{noon.Add(time.Duration(next))}, noon, number)
		if len(g.Slots) > number {
			t.Errorf("%d slots, asked for %d", len(g.Slots), number)
		}
		for i, slot := range g.Slots {
			if slot.Before(noon) || slot.After(noon.Add(SlotLeadTime)) || i > 0 && slot.Before(g.Slots[i-1]) {
				t.Errorf("slot %d is at %s", i, slot)
			}
		}
		if number > 0 && len(g.Slots) == 0 && !g.RetryTime.After(noon) {
			t.Errorf("asked to come again at %s", g.RetryTime)
		}
	})
}
