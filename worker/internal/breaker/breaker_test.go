package breaker

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/test/require"
)

var startTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(offset time.Duration) time.Time { return startTime.Add(offset) }

var testSettings = Settings{FailureThresholdPercent: 50, Window: time.Minute, MinSamples: 4, Cooldown: 30 * time.Second}

// runJobs runs one job a second from the given offset. In results, + is a job that succeeds, - is a job that fails, and a space is a minute
// without jobs.
func runJobs(b *Breaker, from time.Duration, results string) {
	now := at(from)
	for _, result := range results {
		if result == ' ' {
			now = now.Add(time.Minute)
			continue
		}
		b.RecordResult(b.AdmitJob(now), result == '-', now)
		now = now.Add(time.Second)
	}
}

func TestBreakerOpensAtTheFailureThreshold(t *testing.T) {
	for name, row := range map[string]struct {
		settings Settings
		results  string
		want     State
	}{
		"no jobs":                                  {testSettings, "", Closed},
		"fewer jobs than MinSamples":               {testSettings, "---", Closed},
		"fewer within the window":                  {testSettings, "---  -", Closed},
		"all of MinSamples failed":                 {testSettings, "----", Open},
		"failures reach the threshold":             {testSettings, "++--", Open},
		"failures stay below the threshold":        {testSettings, "+++--", Closed},
		"threshold reached by a job that succeeds": {testSettings, "---+", Open},
		"no threshold":                             {Settings{}, "----------------", Closed},
	} {
		t.Run(name, func(t *testing.T) {
			b := New(row.settings)
			runJobs(b, 0, row.results)
			require.Equal(t, row.want, b.State(at(10*time.Second)))
		})
	}
}

func TestOpenBreakerAdmitsOneProbeAfterTheCooldown(t *testing.T) {
	for probe, want := range map[string]State{"+": Closed, "-": Open} {
		b := New(testSettings)
		runJobs(b, 0, "----") // opens at 3 s
		require.Equal(t, 0, b.AdmissionLimit(at(33*time.Second-1)))
		require.Equal(t, 1, b.AdmissionLimit(at(33*time.Second)))
		runJobs(b, 33*time.Second, probe)
		require.Equal(t, want, b.State(at(40*time.Second)))
	}
}

func TestJobsStartedBeforeTheBreakerOpenedDoNotCount(t *testing.T) {
	b := New(testSettings)
	slow := b.AdmitJob(startTime)
	runJobs(b, 0, "----")
	b.RecordResult(slow, false, at(time.Minute))
	got := b.State(at(time.Minute))
	require.True(t, got == HalfOpen && b.AdmissionLimit(at(time.Minute)) == 1, "state %s, admits %d jobs", got, b.AdmissionLimit(at(time.Minute)))
}

func TestRandomResultsNeitherBlockTheBreakerNorAdmitASecondProbe(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		b, now := New(testSettings), startTime
		var running []Ticket
		for range 2000 {
			now = now.Add(time.Duration(random.Int64N(int64(3 * time.Second))))
			limit := b.AdmissionLimit(now)
			require.True(t, (b.State(now) != HalfOpen || limit <= 1) && limit >= 0, "seed %d: state %s admits %d jobs", seed, b.State(now), limit)
			if limit > 0 && random.IntN(2) == 0 {
				running = append(running, b.AdmitJob(now))
				continue
			}
			if len(running) > 0 {
				ticket := running[0]
				running = running[1:]
				if random.IntN(10) == 0 {
					b.DiscardResult(ticket, now)
				} else {
					b.RecordResult(ticket, random.IntN(3) == 0, now)
				}
			}
		}
		for _, ticket := range running {
			b.RecordResult(ticket, false, now)
		}
		now = now.Add(time.Hour)
		require.True(t, b.AdmissionLimit(now) > 0, "seed %d: no job is admitted after an hour in state %s", seed, b.State(now))
	}
}

func TestSettingsAreValidated(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*Settings)
		want   string
	}{
		"valid settings":                {func(*Settings) {}, ""},
		"disabled, other fields unset":  {func(s *Settings) { *s = Settings{} }, ""},
		"threshold above 100 percent":   {func(s *Settings) { s.FailureThresholdPercent = 101 }, "failureThresholdPercent is 101, must be 0 to 100"},
		"window is not set":             {func(s *Settings) { s.Window = 0 }, "window is 0s, must be at least 1s"},
		"minimum of samples is not set": {func(s *Settings) { s.MinSamples = 0 }, "minSamples is 0, must be at least 1"},
		"cooldown is not set":           {func(s *Settings) { s.Cooldown = 0 }, "cooldown is 0s, must be more than 0"},
	} {
		t.Run(name, func(t *testing.T) {
			s := testSettings
			row.change(&s)
			got := ""
			if err := s.Validate(); err != nil {
				got = err.Error()
			}
			require.True(t, got == row.want, "error %q, want %q", got, row.want)
		})
	}
}
