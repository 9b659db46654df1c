package render

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/jobreport"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// JobDetails is the input of ExplainJob.
type JobDetails struct {
	Job     *batchv1.Job
	Finding jobreport.Finding
	// SupersededBy is the Job that makes the failure of this Job irrelevant; empty without such a Job.
	SupersededBy string
	// Pods and Events are empty if the Job has none, or if they are unknown.
	Pods   []corev1.Pod
	Events []corev1.Event
}

// JobExplanation says why a Job is stale, and what to do.
type JobExplanation struct {
	Namespace     string             `json:"namespace"`
	Name          string             `json:"name"`
	Category      jobreport.Category `json:"category"`
	Reason        jobreport.Reason   `json:"reason,omitempty"`
	Since         *metav1.Time       `json:"since,omitempty"`
	Message       string             `json:"message,omitempty"`
	Owner         string             `json:"owner,omitempty"`
	Pods          string             `json:"pods"`
	FailedIndexes string             `json:"failedIndexes,omitempty"`
	Causes        []JobCause         `json:"causes,omitempty"`
	// Next is a sentence about what to do, and Command begins it.
	Next    string `json:"next,omitempty"`
	Command string `json:"command,omitempty"`
	// LogOf is the container whose log shows most, and Log are its last lines.
	LogOf *ContainerLog `json:"logOf,omitempty"`
	Log   []string      `json:"log,omitempty"`
}

// ContainerLog names the log of a container.
type ContainerLog struct {
	Pod       string `json:"pod"`
	Container string `json:"container"`
	// Previous is true for the log of the container before its last restart.
	Previous bool `json:"previous,omitempty"`
}

// JobCause is why Pods make no progress, or a warning about the Job.
type JobCause struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Pods is the number of Pods with this cause; 0 for a warning. The fields below belong to the first of them.
	Pods      int          `json:"pods,omitempty"`
	Pod       string       `json:"pod,omitempty"`
	Container string       `json:"container,omitempty"`
	Image     string       `json:"image,omitempty"`
	ExitCode  *int32       `json:"exitCode,omitempty"`
	Since     *metav1.Time `json:"since,omitempty"`

	// command shows more about the cause. hasLog is true if the container has run, and previous if its last run has ended.
	command          string
	hasLog, previous bool
}

// ExplainJob derives the explanation of a Job from what is known about it.
func ExplainJob(d *JobDetails) *JobExplanation {
	job, status := d.Job, &d.Job.Status
	e := &JobExplanation{
		Namespace: job.Namespace, Name: job.Name, Category: d.Finding.Category, Reason: d.Finding.Reason,
		Message: d.Finding.Message, Owner: jobreport.OwnerOf(job).String(), Causes: jobCauses(d),
	}
	if !d.Finding.Since.IsZero() {
		e.Since = new(metav1.NewTime(d.Finding.Since))
	}
	if d.SupersededBy != "" {
		e.Message = "it failed, but the later Job " + d.SupersededBy + " does the same work"
	}
	e.Pods = fmt.Sprintf("%d active", status.Active)
	if status.Ready != nil {
		e.Pods += fmt.Sprintf(", %d ready", *status.Ready)
	}
	e.Pods += fmt.Sprintf(", %d succeeded, %d failed", status.Succeeded, status.Failed)
	if status.FailedIndexes != nil {
		e.FailedIndexes = decision.TruncateMessage(*status.FailedIndexes, jobreport.MaxMessageBytes)
	}
	if d.Finding.Reason == "" {
		return e
	}
	e.Next, e.Command = jobreport.NextStep(d.Finding.Reason, job.Namespace, job.Name)
	if isThis := strings.Contains(e.Command, "report explain"); isThis {
		e.Command = "kubectl describe job " + job.Name + " -n " + job.Namespace
		for i := range e.Causes {
			if e.Causes[i].command != "" {
				e.Command = e.Causes[i].command
				break
			}
		}
	}
	for i := range e.Causes {
		if cause := &e.Causes[i]; cause.hasLog && e.LogOf == nil {
			e.LogOf = &ContainerLog{cause.Pod, cause.Container, cause.previous}
		}
	}
	for i := range d.Pods {
		if pod := &d.Pods[i]; e.LogOf == nil && len(pod.Spec.Containers) > 0 && pod.Status.Phase == corev1.PodRunning {
			e.LogOf = &ContainerLog{Pod: pod.Name, Container: pod.Spec.Containers[0].Name}
		}
	}
	return e
}

// Lines renders the explanation.
func (e *JobExplanation) Lines(s terminal.Style, now time.Time) []string {
	age := func(since *metav1.Time) string { return duration.HumanDuration(max(0, now.Sub(since.Time))) }
	header := []string{s.Bold("job.batch/" + e.Name), string(e.Category), string(e.Reason)}
	if e.Since != nil {
		header = append(header, "for "+age(e.Since))
	}
	var rows [][]string
	addRow := func(title, text string) {
		if text != "" {
			rows = append(rows, []string{title, terminal.Sanitize(text)})
		}
	}
	addRow("message", e.Message)
	addRow("owner", e.Owner)
	addRow("pods", e.Pods)
	addRow("indexes failed", e.FailedIndexes)
	for i := range e.Causes {
		cause := &e.Causes[i]
		text := cause.Message
		if cause.Pods > 0 {
			noun := "Pods"
			if cause.Pods == 1 {
				noun = "Pod"
			}
			text = fmt.Sprintf("%d %s %s", cause.Pods, noun, text)
		}
		text = cause.Reason + ": " + text
		if cause.Since != nil {
			text += " (" + age(cause.Since) + " ago)"
		}
		addRow("cause", text)
		addRow("image", cause.Image)
	}
	addRow("next", e.Next)
	addRow("command", e.Command)
	if e.LogOf != nil && len(e.Log) > 0 {
		addRow("log of", e.LogOf.Pod+" "+e.LogOf.Container)
	}
	lines := append([]string{joinNonEmpty("   ", header...)}, indentedColumns(rows)...)
	for _, line := range e.Log {
		lines = append(lines, "    "+terminal.Sanitize(line))
	}
	return lines
}

// jobCauses returns the causes of Pods, of which equal ones are counted, then warnings about the Job itself, such as a refused Pod.
func jobCauses(d *JobDetails) []JobCause {
	var causes []JobCause // in the order of their first appearance
	explained := map[string]bool{}
	for i := range d.Pods {
		cause := podCause(d.Job, &d.Pods[i])
		if cause == nil {
			continue
		}
		explained[string(d.Pods[i].UID)] = true
		isSame := func(known JobCause) bool { return known.Reason == cause.Reason && known.Message == cause.Message }
		if at := slices.IndexFunc(causes, isSame); at >= 0 {
			causes[at].Pods++
			continue
		}
		cause.Pods, cause.Pod = 1, d.Pods[i].Name
		causes = append(causes, *cause)
	}
	const maxCauses = 5
	causes = causes[:min(len(causes), maxCauses)]
	return append(causes, warnings(d.Job.Namespace, d.Events, explained)...)
}

// podCause returns why a Pod makes no progress; nil if it does, or if the reason is unknown.
func podCause(job *batchv1.Job, pod *corev1.Pod) *JobCause {
	describe := "kubectl describe pod " + pod.Name + " -n " + pod.Namespace
	if pod.DeletionTimestamp != nil {
		cause := &JobCause{Reason: "Terminating", Message: "on node " + cmp.Or(pod.Spec.NodeName, "none"), Since: new(metav1.NewTime(decision.DeletionRequestTime(pod))), command: describe}
		if pod.Spec.NodeName != "" {
			cause.command = "kubectl get node " + pod.Spec.NodeName
		}
		return cause
	}
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return &JobCause{Reason: cmp.Or(c.Reason, "NotScheduled"), Message: withMessage("without a node", c.Message), command: describe}
		}
	}
	if cause := endedBesideOthers(job, pod); cause != nil {
		return cause
	}
	statuses := slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
	for i := range statuses {
		if cause := containerCause(pod, &statuses[i]); cause != nil {
			cause.command = cmp.Or(cause.command, describe)
			return cause
		}
	}
	if pod.Status.Phase == corev1.PodFailed {
		return &JobCause{Reason: cmp.Or(pod.Status.Reason, "Failed"), Message: withMessage("failed", pod.Status.Message), command: describe}
	}
	for i := range pod.Status.InitContainerStatuses {
		status := &pod.Status.InitContainerStatuses[i]
		if status.State.Running != nil && !decision.IsSidecar(pod, status.Name) {
			return &JobCause{
				Reason: "Initializing", Message: "with init container " + status.Name + " at work", Container: status.Name, Image: status.Image,
				Since: &status.State.Running.StartedAt, command: logCommand(pod, status.Name, false), hasLog: true,
			}
		}
	}
	for i := range pod.Status.ContainerStatuses {
		if status := &pod.Status.ContainerStatuses[i]; status.State.Running != nil && !status.Ready {
			return &JobCause{
				Reason: "NotReady", Message: "with container " + status.Name + ", which runs but is not ready", Container: status.Name, Image: status.Image,
				Since: &status.State.Running.StartedAt, command: describe, hasLog: true,
			}
		}
	}
	return nil
}

// endedBesideOthers returns the cause of a Pod that does not end although one of its containers has ended: another one runs on.
// Containers that the Job does not have were injected.
func endedBesideOthers(job *batchv1.Job, pod *corev1.Pod) *JobCause {
	var ended, running *corev1.ContainerStatus
	reason := "SidecarRunsOn"
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		switch {
		case status.State.Terminated != nil && ended == nil:
			ended = status
		case status.State.Running != nil:
			running = cmp.Or(running, status)
			if slices.ContainsFunc(job.Spec.Template.Spec.Containers, func(c corev1.Container) bool { return c.Name == status.Name }) {
				reason = "ContainerEnded" // the other one may be the work
			}
		}
	}
	if ended == nil || running == nil {
		return nil
	}
	end := ended.State.Terminated
	return &JobCause{
		Reason: reason, Message: fmt.Sprintf("with container %s, which ended with exit code %d, while container %s runs on", ended.Name, end.ExitCode, running.Name),
		Container: running.Name, Image: running.Image, ExitCode: &end.ExitCode, Since: &end.FinishedAt,
		command: logCommand(pod, running.Name, false), hasLog: true,
	}
}

func logCommand(pod *corev1.Pod, container string, previous bool) string {
	command := "kubectl logs " + pod.Name + " -n " + pod.Namespace + " -c " + container + " --tail=50"
	if previous {
		command += " --previous"
	}
	return command
}

// usualWaitingReasons are the reasons of a container that starts as expected.
var usualWaitingReasons = []string{"", "ContainerCreating", "PodInitializing"}

func containerCause(pod *corev1.Pod, container *corev1.ContainerStatus) *JobCause {
	cause := &JobCause{Container: container.Name, Image: container.Image}
	text := ""
	if waiting := container.State.Waiting; waiting != nil && !slices.Contains(usualWaitingReasons, waiting.Reason) {
		cause.Reason, text = waiting.Reason, withMessage("waits", waiting.Message)
	}
	ended := cmp.Or(container.State.Terminated, container.LastTerminationState.Terminated)
	if ended != nil && ended.ExitCode != 0 {
		exit := fmt.Sprintf("exited with code %d", ended.ExitCode)
		if ended.Reason != "" && ended.Reason != "Error" {
			exit += " (" + ended.Reason + ")"
		}
		cause.ExitCode, cause.hasLog, cause.previous = &ended.ExitCode, true, container.State.Terminated == nil
		if !ended.FinishedAt.IsZero() {
			cause.Since = &ended.FinishedAt
		}
		cause.Reason = cmp.Or(cause.Reason, ended.Reason, "Error")
		cause.command = logCommand(pod, container.Name, cause.previous)
		text = withMessage(joinNonEmpty(", last ", text, exit), jobreport.TruncateText(ended.Message, jobreport.MaxMessageBytes))
	}
	if text == "" {
		return nil
	}
	cause.Message = fmt.Sprintf("with container %s, which %s", container.Name, text)
	return cause
}

// withMessage joins a text and a message.
func withMessage(text, message string) string {
	if message == "" {
		return text
	}
	return text + ": " + podName.ReplaceAllString(message, "$1")
}

// podName matches the name of a Pod in a message, and the kubelet's addition to it. Both differ for each Pod: without them, several
// Pods with the same cause give one cause.
var podName = regexp.MustCompile(`(\b[Pp]ods?) "[^"]*"| pod=[^ ]*\([^ )]*\)`)

// warnings returns the different warnings about the Job, and about Pods whose status states no cause, the latest first.
func warnings(namespace string, events []corev1.Event, explained map[string]bool) []JobCause {
	sorted := slices.Clone(events)
	slices.SortStableFunc(sorted, func(a, b corev1.Event) int { return EventTime(&b).Compare(EventTime(&a)) })
	var causes []JobCause
	for i := range sorted {
		event := &sorted[i]
		cause := JobCause{Reason: event.Reason, Message: podName.ReplaceAllString(strings.TrimPrefix(event.Message, "Error creating: "), "$1")}
		isKnown := func(known JobCause) bool { return known.Reason == cause.Reason && known.Message == cause.Message }
		if event.Type != corev1.EventTypeWarning || explained[string(event.InvolvedObject.UID)] || slices.ContainsFunc(causes, isKnown) {
			continue
		}
		for _, known := range refusalCommands {
			if strings.Contains(cause.Message, known.text) {
				cause.command = strings.ReplaceAll(known.command, "NAMESPACE", namespace)
			}
		}
		causes = append(causes, cause)
	}
	const maxWarnings = 5
	return causes[:min(len(causes), maxWarnings)]
}

// refusalCommands show what refuses the Pods of a Job, by a text of the refusal.
var refusalCommands = []struct{ text, command string }{
	{"exceeded quota", "kubectl describe resourcequota -n NAMESPACE"},
	{"failed quota", "kubectl describe resourcequota -n NAMESPACE"},
	{"usage per", "kubectl describe limitrange -n NAMESPACE"},
	{"violates PodSecurity", "kubectl describe namespace NAMESPACE"},
	{"looking up service account", "kubectl get serviceaccounts -n NAMESPACE"},
}

// EventTime returns when an event was last observed.
func EventTime(event *corev1.Event) time.Time {
	if event.Series != nil {
		return event.Series.LastObservedTime.Time
	}
	if event.LastTimestamp.IsZero() {
		return event.EventTime.Time
	}
	return event.LastTimestamp.Time
}
