package session

import (
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// pass plays one pass of the operator, as the reconciler makes it: observe, decide, record,
// act, with a chance of a crash between any two requests. It tells whether anything was
// written.
func (w *world) pass() bool {
	in := Input{
		Session: w.seen.session.DeepCopy(), Runner: w.runner, Jobs: w.seen.jobs, Pods: w.seen.pods,
		Created: w.created, Now: w.now, Activity: w.activity(),
	}
	version := w.seen.version
	for tries := 0; ; tries++ {
		plan := w.decide(&in)
		wrote := plan.Changed(in.Session)
		if wrote && !w.record(&in, &version, &plan) {
			return true
		}
		if acts := len(plan.Delete) > 0 || plan.Create != nil; acts && !wrote && version != w.version {
			w.conflicts++ // it reads again before it acts on what it has not written over
			return true
		}
		refusal, acted := w.act(&in, &plan)
		if refusal == nil || tries > 1 {
			return wrote || acted
		}
		in.Refusal, in.Answers = refusal, Answers{}
	}
}

func (w *world) activity() *Activity {
	if w.calm || w.chance(50) {
		return nil
	}
	return &Activity{Renewed: w.now.Add(time.Duration(w.rng.IntN(60)-50) * time.Second)}
}

// decide answers questions with what is live.
func (w *world) decide(in *Input) Plan {
	for range 5 {
		plan := Decide(*in)
		switch {
		case plan.Ask == nil:
			return plan
		case plan.Ask.AllJobs:
			in.Jobs, in.Pods = w.live()
			in.Answers.Listed = true
		default:
			if in.Answers.Read == nil {
				in.Answers.Read = map[string]*batchv1.Job{}
			}
			in.Answers.Read[plan.Ask.JobNamed] = nil
			jobs, pods := w.live()
			for _, job := range jobs {
				if job.Name == plan.Ask.JobNamed {
					in.Answers.Read[job.Name] = job
					in.Pods = pods
				}
			}
		}
	}
	w.violate("it asks for ever")
	return Plan{}
}

// crash may end the process between two requests, with all it remembers.
func (w *world) crash() bool {
	if w.calm || !w.chance(4) {
		return false
	}
	w.note("operator crashes")
	w.crashes++
	w.created = map[string]types.UID{}
	return true
}

// record writes the status over what was read.
func (w *world) record(in *Input, version *int, plan *Plan) bool {
	if w.crash() {
		return false
	}
	if *version != w.version {
		w.note("conflict")
		w.conflicts++
		return false
	}
	before := w.session.Status.Phase
	w.session = w.session.DeepCopy()
	w.session.Status = *plan.Status.DeepCopy()
	w.version++
	*version = w.version
	in.Session = w.session.DeepCopy()
	if before != plan.Status.Phase {
		w.note("phase %s, job %q, run %d, attempt %d", plan.Status.Phase, plan.Status.Job, plan.Status.Run, plan.Status.Attempt)
	}
	return true
}

// act carries out the rest of a plan.
func (w *world) act(in *Input, plan *Plan) (refusal *Refusal, acted bool) {
	for _, job := range plan.Delete {
		if w.crash() {
			return nil, true
		}
		acted = true
		for _, j := range w.jobs {
			if j.job.UID == job.UID && j.job.Generation == job.Generation { // the version that was seen
				w.note("operator deletes %s", job.Name)
				w.stops++
				w.delete(j)
			}
		}
	}
	if plan.Create == nil {
		return nil, acted
	}
	if w.crash() {
		return nil, true
	}
	if !w.calm && w.chance(10) {
		kind := []RefusalKind{RefusedQuota, RefusedForeign, RefusedInvalid}[w.rng.IntN(3)]
		w.note("refused: %s", kind)
		return &Refusal{Kind: kind, Object: "Pod", Message: "no"}, true
	}
	w.create(in, plan.Create)
	return nil, true
}

func (w *world) create(in *Input, job *batchv1.Job) {
	for _, j := range w.jobs {
		if j.job.Name == job.Name {
			w.note("%s is there already", job.Name)
			return
		}
	}
	w.made[job.Name]++
	if w.made[job.Name] > 1 && !w.meddled[job.Name] {
		w.violate("%s is made again", job.Name)
	}
	if job.Spec.ActiveDeadlineSeconds == nil || !IsOwned(in.Session, job) {
		w.violate("%s has no deadline, or no owner", job.Name)
	}
	w.uids++
	made := job.DeepCopy()
	made.UID = types.UID(fmt.Sprintf("job-%d", w.uids))
	made.CreationTimestamp = metav1.NewTime(w.now.Truncate(time.Second))
	made.Status.StartTime = new(metav1.NewTime(w.now.Truncate(time.Second)))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: made.Name + "-x", OwnerReferences: []metav1.OwnerReference{{UID: made.UID, Controller: new(true)}}}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: v1alpha1.RunnerContainer}}
	w.jobs = append(w.jobs, &simJob{job: made, pod: pod, stuck: w.chance(15), code: int32(max(w.rng.IntN(4)-1, 0))})
	w.note("%s is made, for %d seconds", made.Name, *made.Spec.ActiveDeadlineSeconds)
	if !w.crash() {
		w.created[made.Name] = made.UID
	}
}
