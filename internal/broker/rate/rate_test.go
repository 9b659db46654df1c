package rate

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/test/require"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func timeAt(d time.Duration) time.Time { return noon.Add(d) }

func TestTakeSlots(t *testing.T) {
	const ms = time.Millisecond
	tenth, everyMinute := Limit{Interval: 100 * ms, Burst: 1}, Limit{time.Minute, 1}
	// granted returns slots, after which the next one is free; later that none is granted before a time.
	granted := func(next time.Duration, slots ...time.Duration) (grant SlotGrant) {
		for _, slot := range slots {
			grant.Slots = append(grant.Slots, timeAt(slot))
		}
		grant.State = SharedState{timeAt(next)}
		return grant
	}
	later := func(next, retry time.Duration) SlotGrant {
		return SlotGrant{State: SharedState{timeAt(next)}, RetryTime: timeAt(retry)}
	}
	for name, row := range map[string]struct {
		limit  Limit
		next   time.Duration
		number int
		want   SlotGrant
	}{
		"the first job starts immediately":                                   {tenth, -time.Hour, 1, granted(0, 0)},
		"slots within the lead time are granted":                             {tenth, 0, 9, granted(300*ms, 0, 100*ms, 200*ms)},
		"at most the requested number of slots is granted":                   {tenth, 0, 2, granted(200*ms, 0, 100*ms)},
		"a slot after the lead time is not granted yet":                      {tenth, 250 * ms, 1, later(250*ms, 50*ms)},
		"a slot that has just passed is granted and does not delay the next": {tenth, -20 * ms, 2, granted(180*ms, 0, 80*ms)},
		"a burst of 1 grants only the last unused slot in the past":          {tenth, -time.Second, 2, granted(100*ms, 0, 0)},
		"unused slots in the past are granted up to the burst":               {Limit{100 * ms, 3}, -time.Hour, 9, granted(300*ms, 0, 0, 0, 100*ms, 200*ms)},
		"the next slot of an earlier, lower limit is moved forward":          {tenth, time.Hour, 1, later(1300*ms, 1100*ms)},
		"a slot that a worker with a fast clock left free is kept":           {tenth, 1250 * ms, 1, later(1250*ms, 1050*ms)},
		"one job per minute grants the first immediately":                    {everyMinute, -time.Hour, 5, granted(time.Minute-100*ms, 0)},
		"one job per minute grants the next a minute later":                  {everyMinute, time.Minute, 5, later(time.Minute, time.Minute-SlotLeadTime)},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, row.want, row.limit.TakeSlots(SharedState{timeAt(row.next)}, noon, row.number))
		})
	}
}

// Any number of workers share the limit, which changes, and disagree about the time by up to 80 ms. In each window of 10 s, the number of
// job starts is within 2 % of the limit, because there is always work.
func TestRateHoldsForAnyWorkersAndChanges(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 1))
		var starts []time.Time
		state, now := SharedState{}, noon
		limit := Limit{Interval: 10 * time.Millisecond, Burst: 1}
		changed := timeAt(30 * time.Second)
		for now.Before(timeAt(time.Minute)) {
			if !now.Before(changed) {
				limit.Interval = 20 * time.Millisecond
			}
			clockError := time.Duration(random.Int64N(int64(80*time.Millisecond))) - 40*time.Millisecond
			grant := limit.TakeSlots(state, now.Add(clockError), 1+random.IntN(limit.SlotsPerRequest()))
			state = grant.State
			for _, slot := range grant.Slots {
				starts = append(starts, slot.Add(-clockError))
			}
			// A worker requests slots at least every 50 ms.
			now = now.Add(time.Duration(random.Int64N(int64(50 * time.Millisecond))))
		}
		for start := time.Duration(0); start <= 50*time.Second; start += 100 * time.Millisecond {
			n, want := 0, 1000
			for _, slot := range starts {
				if !slot.Before(timeAt(start)) && slot.Before(timeAt(start+10*time.Second)) {
					n++
				}
			}
			switch {
			case start > 30*time.Second+SlotLeadTime: // later than what was taken before the change
				want = 500
			case start > 20*time.Second:
				continue // both limits apply in this window
			}
			require.True(t, n <= want*102/100 && n >= want*98/100, "seed %d: %d jobs start within 10 s of %s, the limit is %d", seed, n, start, want)
		}
	}
}

func FuzzTakeSlots(f *testing.F) {
	f.Add(int64(time.Second), 3, int64(0), 5)
	f.Fuzz(func(t *testing.T, interval int64, burst int, next int64, number int) {
		l := Limit{Interval: time.Duration(1 + uint64(interval)%uint64(time.Hour)), Burst: 1 + int(uint(burst)%1000)}
		number = int(uint(number) % 1000)
		g := l.TakeSlots(SharedState{noon.Add(time.Duration(next))}, noon, number)
		require.True(t, len(g.Slots) <= number, "%d slots granted, %d requested", len(g.Slots), number)
		for i, slot := range g.Slots {
			require.True(t, !slot.Before(noon) && !slot.After(noon.Add(SlotLeadTime)) && (i == 0 || !slot.Before(g.Slots[i-1])), "slot %d is at %s", i, slot)
		}
		require.True(t, number == 0 || len(g.Slots) != 0 || g.RetryTime.After(noon), "no slot granted, but RetryTime is %s", g.RetryTime)
	})
}
