package queue

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
)

func TestNext(t *testing.T) {
	const retain, drain, purge = v1alpha1.DeletionRetain, v1alpha1.DeletionDrain, v1alpha1.DeletionPurge
	empty := &broker.QueueStats{}
	held := &broker.QueueStats{Ready: 2, InFlight: 1}
	dead := &broker.QueueStats{DeadLetters: 3}
	for name, row := range map[string]struct {
		removal Removal
		want    Step
		says    string
	}{
		"given up":                          {removal: Removal{Policy: purge, Abandoned: true, Unreachable: &Trouble{}}, want: StepLetGo},
		"it was another's, or nobody's":     {removal: Removal{Policy: purge, Gone: true}, want: StepLetGo},
		"the broker is not there":           {removal: Removal{Policy: retain, Unreachable: &Trouble{Message: "refused"}}, want: StepWait, says: `yardmaster.dev/abandon: "true"`},
		"retain makes sure whose it is":     {removal: Removal{Policy: retain}, want: StepClaim},
		"drain refuses producers first":     {removal: Removal{Policy: drain, Referrers: []string{"a"}}, want: StepClose},
		"purge waits for WorkerPools":       {removal: Removal{Policy: purge, Referrers: []string{"a"}}, want: StepWait, says: "WorkerPools take messages from it: a"},
		"purge refuses producers then":      {removal: Removal{Policy: purge}, want: StepClose},
		"then it is looked at":              {removal: Removal{Policy: purge, Held: true}, want: StepLook},
		"drain waits until it is empty":     {removal: Removal{Policy: drain, Held: true, Figures: held, Referrers: []string{"a"}}, want: StepWait, says: "3 messages left"},
		"which it is not going to be":       {removal: Removal{Policy: drain, Held: true, Figures: held, Paused: true}, want: StepWait, says: "paused keeps them"},
		"drained, it waits for WorkerPools": {removal: Removal{Policy: drain, Held: true, Figures: empty, Referrers: []string{"a"}}, want: StepWait, says: ": a"},
		"retain waits for WorkerPools":      {removal: Removal{Policy: retain, Held: true, Figures: held, Referrers: strings.Split("abcdefg", "")}, want: StepWait, says: "a, b, c, d, e and 2 more"},
		"dead letters block":                {removal: Removal{Policy: retain, Held: true, Figures: dead}, want: StepWait, says: "3 dead letters"},
		"dead letters are moved":            {removal: Removal{Policy: retain, Held: true, Figures: dead, Letters: v1alpha1.DeadLetterMove}, want: StepMoveLetters},
		"but not to nowhere":                {removal: Removal{Policy: retain, Held: true, Figures: dead, Letters: v1alpha1.DeadLetterMove, NoTarget: NoTarget("x", "not found")}, want: StepWait, says: `Queue "x" not found`},
		"dead letters are purged":           {removal: Removal{Policy: drain, Held: true, Figures: dead, Letters: v1alpha1.DeadLetterPurge}, want: StepPurgeLetters},
		"retain lets others have it":        {removal: Removal{Policy: retain, Held: true, Figures: held}, want: StepRelease},
		"purge takes the messages along":    {removal: Removal{Policy: purge, Held: true, Figures: held}, want: StepDelete},
		"drained, it is deleted":            {removal: Removal{Policy: drain, Held: true, Figures: empty}, want: StepDelete},
		"done":                              {removal: Removal{Policy: drain, Held: true, Figures: empty, Finished: true}, want: StepLetGo},
		"a going namespace's pools go too":  {removal: Removal{Policy: purge, Going: true, Referrers: []string{"a"}}, want: StepWait, says: ": a"},
		"but not its broker's Secrets":      {removal: Removal{Policy: purge, Going: true, Unreachable: &Trouble{}}, want: StepLetGo},
		"nor a place for its dead letters":  {removal: Removal{Policy: retain, Going: true, Held: true, Figures: dead}, want: StepRelease},
		"nor who would empty it":            {removal: Removal{Policy: drain, Going: true, Held: true, Figures: held}, want: StepRelease},
		"whatever it can do is done":        {removal: Removal{Policy: purge, Going: true, Held: true, Figures: held}, want: StepDelete},
	} {
		t.Run(name, func(t *testing.T) {
			step, trouble := row.removal.Next()
			if step != row.want || (trouble != nil) != (step == StepWait) {
				t.Errorf("%s, %+v; want %s", step, trouble, row.want)
			}
			if trouble != nil && !strings.Contains(trouble.Message, row.says) {
				t.Errorf("it says %q, want %q", trouble.Message, row.says)
			}
		})
	}
}

// world is a broker with one queue, and what users do about it.
type world struct {
	there, mine, closed bool
	held, dead, moved   int64
	referrers           int
	purged, lost        int64
}

// take does to the world what a step does, and tells the removal.
func (w *world) take(step Step, r *Removal) {
	if !w.there || !w.mine {
		r.Gone = true
		return
	}
	switch step {
	case StepClaim:
		r.Held = true
	case StepClose:
		r.Held, w.closed = true, true
	case StepLook:
		r.Figures = &broker.QueueStats{Ready: w.held, DeadLetters: w.dead}
	case StepMoveLetters:
		n := min(w.dead, 2)
		w.dead, w.moved, r.Figures = w.dead-n, w.moved+n, nil
	case StepPurgeLetters:
		w.purged, w.dead, r.Figures = w.purged+w.dead, 0, nil
	case StepRelease:
		w.mine, r.Finished = false, true
	case StepDelete:
		w.lost += w.held + w.dead
		w.there, r.Finished = false, true
	case StepWait, StepLetGo:
	}
}

// Whatever is in a queue, and however often the process that removes it is killed between
// two steps: it ends, only what may be lost is lost, and nothing of another is touched.
func TestADeletionEndsAndLosesOnlyWhatItMay(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	policies := []v1alpha1.DeletionPolicy{v1alpha1.DeletionRetain, v1alpha1.DeletionDrain, v1alpha1.DeletionPurge}
	letters := []v1alpha1.DeadLetterAction{v1alpha1.DeadLetterMove, v1alpha1.DeadLetterPurge}
	for range 20_000 {
		w := &world{there: random.IntN(10) > 0, mine: random.IntN(10) > 0, held: random.Int64N(5), dead: random.Int64N(7), referrers: random.IntN(3)}
		began := *w
		fresh := Removal{Policy: policies[random.IntN(3)], Letters: letters[random.IntN(2)]}
		r, steps := fresh, []Step{}
		for {
			r.Referrers = slices.Repeat([]string{"pool"}, w.referrers)
			step, _ := r.Next()
			steps = append(steps, step)
			if step == StepLetGo {
				break
			}
			if len(steps) > 500 {
				t.Fatalf("%+v, %s: it does not end: %v", began, fresh.Policy, steps[:50])
			}
			if step == StepWait { // workers and users get on
				w.held, w.referrers = max(0, w.held-1), max(0, w.referrers-1)
				r = fresh
				continue
			}
			w.take(step, &r)
			if random.IntN(4) == 0 { // killed, or a second leader
				r = fresh
			}
		}
		check(t, &began, w, &fresh, steps)
	}
}

func check(t *testing.T, began, w *world, r *Removal, steps []Step) {
	t.Helper()
	if !began.there || !began.mine {
		began.referrers, w.referrers = 0, 0
		began.held, w.held = 0, 0 // users went on
		if diff := cmp.Diff(began, w, cmp.AllowUnexported(world{})); diff != "" {
			t.Fatalf("what is another's was changed by %v:\n%s", steps, diff)
		}
		return
	}
	if w.referrers > 0 {
		t.Fatalf("it went while WorkerPools named it: %v", steps)
	}
	switch {
	case r.Policy == v1alpha1.DeletionRetain && (!w.there || w.mine || w.closed || w.lost > 0),
		r.Policy != v1alpha1.DeletionRetain && w.there,
		r.Policy == v1alpha1.DeletionDrain && w.lost > 0,
		r.Letters == v1alpha1.DeadLetterMove && w.moved != began.dead,
		r.Letters == v1alpha1.DeadLetterPurge && w.purged != began.dead:
		t.Fatalf("%s, %s: %+v became %+v by %v", r.Policy, r.Letters, *began, *w, steps)
	}
}
