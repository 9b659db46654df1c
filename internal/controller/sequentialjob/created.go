package sequentialjob

import (
	"slices"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// trust is how long a Job that was made is taken to exist though the cache does not show
// it. After that the API server is asked.
const trust = 5 * time.Second

// createdJobs remembers, of each SequentialJob, the Jobs that are known to have been made
// and whose UID its status does not hold yet. With it a Job that someone deletes in that
// time is known to be lost, not taken for one still to be made.
type createdJobs struct {
	mu   sync.Mutex
	jobs map[types.UID]map[string]createdJob
	keys map[types.NamespacedName]types.UID
}

type createdJob struct {
	job *batchv1.Job
	at  time.Time
}

func newCreatedJobs() *createdJobs {
	return &createdJobs{
		jobs: map[types.UID]map[string]createdJob{},
		keys: map[types.NamespacedName]types.UID{},
	}
}

// add remembers a Job that exists.
func (c *createdJobs) add(sj *v1alpha1.SequentialJob, job *batchv1.Job, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.jobs[sj.UID] == nil {
		c.jobs[sj.UID] = map[string]createdJob{}
		c.keys[types.NamespacedName{Namespace: sj.Namespace, Name: sj.Name}] = sj.UID
	}
	if _, known := c.jobs[sj.UID][job.Name]; !known {
		job = job.DeepCopy()
		job.Spec.Template = corev1.PodTemplateSpec{} // most of a Job, and not needed here
		job.ManagedFields = nil
		c.jobs[sj.UID][job.Name] = createdJob{job: job, at: now}
	}
}

// of returns the remembered Jobs that the cache should but does not show yet, and the
// UIDs of all that are remembered.
func (c *createdJobs) of(sj *v1alpha1.SequentialJob, cached []*batchv1.Job, now time.Time) (missing []*batchv1.Job, created map[string]types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	created = map[string]types.UID{}
	for name, entry := range c.jobs[sj.UID] {
		created[name] = entry.job.UID
		shown := slices.ContainsFunc(cached, func(job *batchv1.Job) bool { return job.UID == entry.job.UID })
		switch {
		case shown:
			// From now on the cache is the one to tell: a Job it no longer shows is gone.
			c.jobs[sj.UID][name] = createdJob{job: entry.job}
		case now.Sub(entry.at) < trust:
			missing = append(missing, entry.job)
		}
	}
	return missing, created
}

// settle forgets the Jobs whose UID the status holds.
func (c *createdJobs) settle(sj *v1alpha1.SequentialJob) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range sj.Status.Steps {
		if step := &sj.Status.Steps[i]; step.JobUID != "" {
			delete(c.jobs[sj.UID], step.JobName)
		}
	}
}

// forget drops all that is remembered of a SequentialJob that is gone.
func (c *createdJobs) forget(key types.NamespacedName) (uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	uid = c.keys[key]
	delete(c.jobs, uid)
	delete(c.keys, key)
	return uid
}
