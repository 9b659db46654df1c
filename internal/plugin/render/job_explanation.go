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
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/jobreport"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// JobDetails is the input of JobExplanation.
type JobDetails struct {
	Job     *batchv1.Job
	Finding jobreport.Finding
	// Pods and Events are empty if the Job has none, or if they are unknown.
	Pods   []corev1.Pod
	Events []corev1.Event
}

// JobExplanation renders a Job's finding, the causes that its Pods and events reveal, and the next step, unless it is to read this
// explanation.
func JobExplanation(s terminal.Style, d JobDetails, now time.Time) []string {
	header := []string{s.Bold("job.batch/" + d.Job.Name), string(d.Finding.Category), string(d.Finding.Reason)}
	if !d.Finding.Since.IsZero() {
		header = append(header, "for "+duration.HumanDuration(max(0, now.Sub(d.Finding.Since))))
	}
	lines := []string{joinNonEmpty("   ", header...)}
	var rows [][]string
	addRow := func(title, text string) {
		if text != "" {
			rows = append(rows, []string{title, terminal.Sanitize(text)})
		}
	}
	addRow("message", d.Finding.Message)
	addRow("owner", jobreport.OwnerOf(d.Job).String())
	status := &d.Job.Status
	pods := fmt.Sprintf("%d active", status.Active)
	if status.Ready != nil {
		pods += fmt.Sprintf(", %d ready", *status.Ready)
	}
	addRow("pods", pods+fmt.Sprintf(", %d succeeded, %d failed", status.Succeeded, status.Failed))
	for _, cause := range jobCauses(&d) {
		addRow("cause", cause)
	}
	if next := jobreport.NextStep(d.Finding.Reason); !strings.Contains(next, "report explain") {
		addRow("next", strings.ReplaceAll(next, "NAME", d.Job.Name))
	}
	return append(lines, indentedColumns(rows)...)
}

// jobCauses returns a line for each cause: causes of Pods, with the number of Pods, then warnings about the Job itself, such as a
// refused Pod.
func jobCauses(d *JobDetails) []string {
	var texts []string // in the order of their first appearance
	counts, explained := map[string]int{}, map[string]bool{}
	for i := range d.Pods {
		if text := podCause(&d.Pods[i]); text != "" {
			explained[string(d.Pods[i].UID)] = true
			counts[text]++
			if counts[text] == 1 {
				texts = append(texts, text)
			}
		}
	}
	var causes []string
	for _, text := range texts {
		noun := "Pods"
		if counts[text] == 1 {
			noun = "Pod"
		}
		causes = append(causes, fmt.Sprintf("%d %s %s", counts[text], noun, text))
	}
	return append(causes, warningTexts(d.Events, explained)...)
}

// podCause returns why a Pod makes no progress; empty if it does, or if the reason is unknown.
func podCause(pod *corev1.Pod) string {
	if pod.DeletionTimestamp != nil {
		return fmt.Sprintf("terminating on node %s since %s", cmp.Or(pod.Spec.NodeName, "none"), decision.DeletionRequestTime(pod).UTC().Format(time.RFC3339))
	}
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return withMessage(cmp.Or(map[string]string{corev1.PodReasonUnschedulable: "unschedulable"}[c.Reason], c.Reason), c.Message)
		}
	}
	for _, containers := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range containers {
			if cause := containerCause(&containers[i]); cause != "" {
				return cause
			}
		}
	}
	if pod.Status.Phase == corev1.PodFailed {
		return withMessage("failed", pod.Status.Message)
	}
	return ""
}

// usualWaitingReasons are the reasons of a container that starts as expected.
var usualWaitingReasons = []string{"", "ContainerCreating", "PodInitializing"}

func containerCause(container *corev1.ContainerStatus) string {
	text := ""
	if waiting := container.State.Waiting; waiting != nil && !slices.Contains(usualWaitingReasons, waiting.Reason) {
		text = withMessage("in "+waiting.Reason, waiting.Message)
	}
	ended := cmp.Or(container.State.Terminated, container.LastTerminationState.Terminated)
	if ended != nil && ended.ExitCode != 0 {
		exit := fmt.Sprintf("exited with code %d", ended.ExitCode)
		if ended.Reason != "" && ended.Reason != "Error" {
			exit += " (" + ended.Reason + ")"
		}
		text = joinNonEmpty(", last ", text, exit)
	}
	if text == "" {
		return ""
	}
	return fmt.Sprintf("with container %s %s", container.Name, text)
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

// warningTexts returns the different warnings about the Job, and about Pods whose status states no cause, the latest first.
func warningTexts(events []corev1.Event, explained map[string]bool) []string {
	sorted := slices.Clone(events)
	slices.SortStableFunc(sorted, func(a, b corev1.Event) int { return eventTime(&b).Compare(eventTime(&a)) })
	var texts []string
	for i := range sorted {
		event := &sorted[i]
		text := event.Reason + ": " + podName.ReplaceAllString(strings.TrimPrefix(event.Message, "Error creating: "), "$1")
		if event.Type == corev1.EventTypeWarning && !explained[string(event.InvolvedObject.UID)] && !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	const maxTexts = 5
	return texts[:min(len(texts), maxTexts)]
}

func eventTime(event *corev1.Event) time.Time {
	if event.Series != nil {
		return event.Series.LastObservedTime.Time
	}
	if event.LastTimestamp.IsZero() {
		return event.EventTime.Time
	}
	return event.LastTimestamp.Time
}
