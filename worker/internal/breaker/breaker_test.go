package breaker

import (
	"math/rand/v2"
	"testing"
	"time"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return noon.Add(d) }

var settings = Settings{
	FailureThresholdPercent: 50, Window: time.Minute, MinSamples: 4, Cooldown: 30 * time.Second, HalfOpenProbes: 2,
}

// play ends one job after another, a second apart: + succeeds, - fails.
func play(b *Breaker, from time.Duration, jobs string) {
	for i, job := range jobs {
		now := at(from + time.Duration(i)*time.Second)
		b.End(b.Begin(now), job == '-', now)
	}
}

func TestWhenItOpens(t *testing.T) {
	for name, row := range map[string]struct {
		jobs string
		want State
	}{
		"nothing happened":              {"", Closed},
		"too few to judge":              {"---", Closed},
		"enough, and all failed":        {"----", Open},
		"as many failed as the share":   {"++--", Open},
		"fewer failed":                  {"+++--", Closed},
		"they succeed again, as it was": {"---+", Open},
	} {
		t.Run(name, func(t *testing.T) {
			b := New(settings)
			play(b, 0, row.jobs)
			if got := b.State(at(10 * time.Second)); got != row.want {
				t.Errorf("%s, want %s", got, row.want)
			}
		})
	}
}

func TestJobsBeforeTheWindowAreForgotten(t *testing.T) {
	b := New(settings)
	play(b, 0, "---")
	play(b, 2*time.Minute, "-")
	if got := b.State(at(3 * time.Minute)); got != Closed {
		t.Errorf("%s", got)
	}
}

func TestAnOpenBreakerTriesAgainAfterItsCooldown(t *testing.T) {
	for name, row := range map[string]struct {
		probes string
		want   State
	}{
		"not yet all probes": {"+", HalfOpen},
		"all probes succeed": {"++", Closed},
		"the first fails":    {"-", Open},
		"the second fails":   {"+-", Open},
	} {
		t.Run(name, func(t *testing.T) {
			b := New(settings)
			play(b, 0, "----") // opens at 3 s
			if got := b.Admits(at(33*time.Second - 1)); got != 0 {
				t.Errorf("open, it admits %d", got)
			}
			if got := b.Admits(at(33 * time.Second)); got != 2 {
				t.Errorf("half-open, it admits %d", got)
			}
			play(b, 33*time.Second, row.probes)
			if got := b.State(at(40 * time.Second)); got != row.want {
				t.Errorf("%s, want %s", got, row.want)
			}
		})
	}
}

func TestProbesAtTheSameTimeAreNoMoreThanAllowed(t *testing.T) {
	b := New(settings)
	play(b, 0, "----")
	now := at(time.Minute)
	first, second := b.Begin(now), b.Begin(now)
	if got := b.Admits(now); got != 0 {
		t.Errorf("it admits %d more", got)
	}
	b.Abandon(first, now)
	if got := b.Admits(now); got != 1 {
		t.Errorf("after one came to nothing it admits %d", got)
	}
	b.End(second, true, now)
	if got := b.State(now); got != Open {
		t.Errorf("%s", got)
	}
}

func TestAJobFromBeforeItOpenedTellsNothing(t *testing.T) {
	b := New(settings)
	slow := b.Begin(noon)
	play(b, 0, "----")
	b.End(slow, false, at(time.Minute))
	if got := b.State(at(time.Minute)); got != HalfOpen || b.Admits(at(time.Minute)) != 2 {
		t.Errorf("%s, admits %d", got, b.Admits(at(time.Minute)))
	}
}

func TestWithoutAThresholdItNeverOpens(t *testing.T) {
	b := New(Settings{})
	play(b, 0, "----------------")
	if got := b.State(at(time.Minute)); got != Closed {
		t.Errorf("%s", got)
	}
}

func TestAtRandomItIsNeverStuckAndNeverAdmitsTooMany(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		b, now := New(settings), noon
		var running []Ticket
		for range 2000 {
			now = now.Add(time.Duration(random.Int64N(int64(3 * time.Second))))
			admits := b.Admits(now)
			if b.State(now) == HalfOpen && admits > settings.HalfOpenProbes || admits < 0 {
				t.Fatalf("seed %d: %s, admits %d", seed, b.State(now), admits)
			}
			if admits > 0 && random.IntN(2) == 0 {
				running = append(running, b.Begin(now))
				continue
			}
			if len(running) > 0 {
				ticket := running[0]
				running = running[1:]
				if random.IntN(10) == 0 {
					b.Abandon(ticket, now)
				} else {
					b.End(ticket, random.IntN(3) == 0, now)
				}
			}
		}
		for _, ticket := range running {
			b.End(ticket, false, now)
		}
		if now = now.Add(time.Hour); b.Admits(now) == 0 {
			t.Fatalf("seed %d: stuck in %s", seed, b.State(now))
		}
	}
}

func TestSettings(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*Settings)
		want   string
	}{
		"all right":              {func(*Settings) {}, ""},
		"off, whatever the rest": {func(s *Settings) { *s = Settings{} }, ""},
		"more than all":          {func(s *Settings) { s.FailureThresholdPercent = 101 }, "failureThresholdPercent is 101, must be 0 to 100"},
		"no window":              {func(s *Settings) { s.Window = 0 }, "window is 0s, must be at least 1s"},
		"no samples":             {func(s *Settings) { s.MinSamples = 0 }, "minSamples is 0, must be at least 1"},
		"no cooldown":            {func(s *Settings) { s.Cooldown = 0 }, "cooldown is 0s, must be more than 0"},
		"no probes":              {func(s *Settings) { s.HalfOpenProbes = 0 }, "halfOpenProbes is 0, must be at least 1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := settings
			row.change(&s)
			got := ""
			if err := s.Validate(); err != nil {
				got = err.Error()
			}
			if got != row.want {
				t.Errorf("%q, want %q", got, row.want)
			}
		})
	}
}
