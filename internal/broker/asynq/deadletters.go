package asynq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	goredis "github.com/redis/go-redis/v9"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/redisclient"
)

// archivedTasks implements broker.DeadLetterQueue with the archive of asynq.
type archivedTasks struct {
	*Engine
	queue string
}

// DeadLetters implements broker.Engine.
func (e *Engine) DeadLetters(queue string) broker.DeadLetterQueue { return &archivedTasks{e, queue} }

// archivedTask is an entry of the archive. Its ID increases: task IDs do not, and the archive stores times in seconds. Within a
// second, the order is arbitrary but stable.
type archivedTask struct {
	id           uint64
	taskID       string
	archivedTime time.Time
	attempts     int
}

// List implements broker.DeadLetterQueue.
func (a *archivedTasks) List(ctx context.Context, after uint64, limit int) ([]broker.DeadLetter, error) {
	var letters []broker.DeadLetter
	err := a.forEachDeadLetter(ctx, &broker.RequeueOptions{After: after, Number: limit}, func(g *archivedTask, task *asynq.TaskInfo) error {
		letters = append(letters, deadLetterFromTask(g, task))
		return nil
	})
	return letters, queueError("listing the dead letters of", a.queue, err)
}

// forEachDeadLetter calls show for the existing dead letters, oldest first, within the bounds of the options.
func (a *archivedTasks) forEachDeadLetter(ctx context.Context, o *broker.RequeueOptions, show func(*archivedTask, *asynq.TaskInfo) error) error {
	if err := a.checkQueueExists(ctx, a.queue); err != nil {
		return err
	}
	archived, err := a.client.ZRangeWithScores(ctx, queueKey(a.queue, archivedSet), 0, -1).Result() // asynq keeps at most 10,000
	if err != nil {
		return err
	}
	var graves []archivedTask
	for _, entry := range archived {
		taskID, seconds := fmt.Sprint(entry.Member), int64(entry.Score)
		id := uint64(seconds)<<32 | uint64(crc32.ChecksumIEEE([]byte(taskID))) //nolint:gosec // a time since 1970
		graves = append(graves, archivedTask{id: id, taskID: taskID, archivedTime: time.Unix(seconds, 0)})
	}
	slices.SortFunc(graves, func(a, b archivedTask) int { return cmp.Compare(a.id, b.id) })
	shown := 0
	for i := range graves {
		if graves[i].id <= o.After {
			continue
		}
		if !o.Continues(shown) {
			break
		}
		if ctx.Err() != nil { // calls of the Inspector have no context
			return ctx.Err()
		}
		task, err := a.inspector.GetTaskInfo(a.queue, graves[i].taskID)
		if errors.Is(err, asynq.ErrTaskNotFound) || err == nil && task.State != asynq.TaskStateArchived {
			continue // someone removed it meanwhile
		}
		if err != nil {
			return err
		}
		graves[i].attempts, err = a.client.HGet(ctx, taskKey(a.queue, task.ID), fieldAttempts).Int()
		switch {
		case errors.Is(err, goredis.Nil): // asynq archived the task by itself
			graves[i].attempts = task.Retried + 1
		case err != nil:
			return err
		}
		if err := show(&graves[i], task); err != nil {
			return err
		}
		shown++
	}
	return nil
}

// Headers of a moved dead letter, for which the archive has no fields.
const (
	headerError    = broker.HeaderPrefix + "Error"
	headerAttempts = broker.HeaderPrefix + "Attempts"
	headerOrigin   = broker.HeaderPrefix + "Origin"
	// headerType is the task's type, beside the headers that its producer gave it.
	headerType = "Asynq-Type"
)

func deadLetterFromTask(g *archivedTask, task *asynq.TaskInfo) broker.DeadLetter {
	letter := broker.DeadLetter{
		ID: g.id, Payload: task.Payload, Headers: messageHeaders(task.Type, task.Headers), Error: task.LastErr,
		Attempts: g.attempts, MessageID: taskKey(task.Queue, task.ID), DeadLetteredTime: g.archivedTime,
	}
	if task.Group != "" && task.LastErr == "" {
		letter.Attempts = 0
		letter.Error = fmt.Sprintf("the task is in the group %.128q, which no worker aggregates: send tasks without asynq.Group, or requeue it to run it alone", task.Group)
	}
	if origin, moved := task.Headers[headerOrigin]; moved {
		letter.MessageID, letter.Error = origin, task.Headers[headerError]
		letter.Attempts, _ = strconv.Atoi(task.Headers[headerAttempts])
	}
	return letter
}

func messageHeaders(kind string, headers map[string]string) map[string][]string {
	all := map[string][]string{headerType: {kind}}
	for name, value := range headers {
		if broker.IsProducerHeader(name) {
			all[name] = []string{value}
		}
	}
	return all
}

// copiedHeaders returns the headers of a copy of a task: those of its producer, and the ID of the job, because the copy has
// another task ID.
func copiedHeaders(task *asynq.TaskInfo) map[string]string {
	headers := map[string]string{}
	for name, value := range task.Headers {
		if broker.IsProducerHeader(name) && !broker.IsBatchHeader(name) {
			headers[name] = value
		}
	}
	headers[broker.JobIDHeader] = jobID(task.Headers, task.ID)
	return headers
}

// jobID returns the ID of a job: that of its task, unless a header has it.
func jobID(headers map[string]string, taskID string) string {
	if id := headers[broker.JobIDHeader]; broker.IsIdentifier(id) {
		return id
	}
	return taskID
}

// Requeue implements broker.DeadLetterQueue. It enqueues new tasks, because asynq's own requeue keeps the attempts.
func (a *archivedTasks) Requeue(ctx context.Context, o broker.RequeueOptions) (int, error) {
	n, err := a.deleteDeadLetters(ctx, o, func(g *archivedTask, letter *asynq.TaskInfo) error {
		content := letter.Payload
		if o.Payload != nil {
			content = *o.Payload
		}
		task := asynq.NewTaskWithHeaders(letter.Type, content, copiedHeaders(letter))
		return a.enqueueCopy(ctx, task, a.queue, copyTaskID(g), letter)
	})
	return n, queueError("requeueing the dead letters of", a.queue, err)
}

// Move implements broker.DeadLetterQueue.
func (a *archivedTasks) Move(ctx context.Context, to string, number int) (int, error) {
	doing := fmt.Sprintf("moving the dead letters of the queue %s to %s", a.queue, to)
	if to == a.queue {
		return 0, broker.Errorf(broker.ClassInvalid, "%s: source and destination are the same queue", doing)
	}
	if err := a.checkQueueExists(ctx, to); err != nil {
		return 0, redisclient.ClassifyError(doing, err)
	}
	n, err := a.deleteDeadLetters(ctx, broker.RequeueOptions{Number: number}, func(g *archivedTask, letter *asynq.TaskInfo) error {
		was := deadLetterFromTask(g, letter)
		headers := copiedHeaders(letter)
		headers[headerOrigin], headers[headerError], headers[headerAttempts] = was.MessageID, was.Error, strconv.Itoa(was.Attempts)
		task := asynq.NewTaskWithHeaders(letter.Type, letter.Payload, headers)
		// No worker may receive the task before it is archived.
		if err := a.enqueueCopy(ctx, task, to, copyTaskID(g), letter, asynq.ProcessIn(farFuture)); err != nil {
			return err
		}
		enqueued, err := a.inspector.GetTaskInfo(to, copyTaskID(g))
		if err != nil || enqueued.State == asynq.TaskStateArchived {
			return err
		}
		return a.inspector.ArchiveTask(to, copyTaskID(g))
	})
	return n, redisclient.ClassifyError(doing, err)
}

// farFuture is longer than any move takes.
const farFuture = 10 * 365 * 24 * time.Hour

// copyTaskID is deterministic, so that a second attempt finds the copy of the first. Its
// length does not grow.
func copyTaskID(g *archivedTask) string {
	original, _, _ := strings.Cut(g.taskID, "~")
	id := original + "~" + strconv.FormatInt(g.archivedTime.Unix(), 36)
	if id == g.taskID { // it was archived again in the second in which it was requeued
		id += "~"
	}
	return id
}

// enqueueCopy enqueues a task with the options of its producer, and all attempts. An ID
// conflict means that an earlier attempt enqueued it.
func (a *archivedTasks) enqueueCopy(
	ctx context.Context, task *asynq.Task, queue, id string, letter *asynq.TaskInfo, more ...asynq.Option,
) error {
	options := append([]asynq.Option{
		asynq.Queue(queue), asynq.TaskID(id), asynq.MaxRetry(letter.MaxRetry), asynq.Timeout(letter.Timeout), asynq.Retention(letter.Retention),
	}, more...)
	if letter.Deadline.After(time.Now()) {
		options = append(options, asynq.Deadline(letter.Deadline))
	}
	_, err := a.producer.EnqueueContext(ctx, task, options...)
	if errors.Is(err, asynq.ErrTaskIDConflict) {
		return nil
	}
	return err
}

// deleteDeadLetters deletes the selected dead letters, each after resend, if it is not nil, has made a copy. It returns the number of
// copies, or without resend that of the deleted dead letters.
func (a *archivedTasks) deleteDeadLetters(
	ctx context.Context, o broker.RequeueOptions, resend func(*archivedTask, *asynq.TaskInfo) error,
) (int, error) {
	done := 0
	err := a.forEachDeadLetter(ctx, &o, func(g *archivedTask, letter *asynq.TaskInfo) error {
		if decoded := deadLetterFromTask(g, letter); o.Selects != nil && !o.Selects(&decoded) {
			return nil
		}
		if resend != nil {
			if err := resend(g, letter); err != nil {
				return err
			}
		}
		err := a.inspector.DeleteTask(a.queue, letter.ID)
		isGone := errors.Is(err, asynq.ErrTaskNotFound) // another client deleted it
		if err == nil || isGone && resend != nil {
			done++
		}
		if isGone {
			return nil
		}
		return err
	})
	return done, err
}

// DeleteSelected implements broker.DeadLetterQueue.
func (a *archivedTasks) DeleteSelected(ctx context.Context, selects func(*broker.DeadLetter) bool) (int, error) {
	deleted, err := a.deleteDeadLetters(ctx, broker.RequeueOptions{Selects: selects}, nil)
	return deleted, queueError("deleting dead letters of", a.queue, err)
}

// Purge implements broker.DeadLetterQueue.
func (a *archivedTasks) Purge(ctx context.Context) error {
	err := a.checkQueueExists(ctx, a.queue)
	if err == nil {
		_, err = a.inspector.DeleteAllArchivedTasks(a.queue)
	}
	return queueError("purging the dead letters of", a.queue, err)
}

// Rescue implements broker.Engine. asynq archives the tasks that it gives up, but not those of groups: they wait for an aggregator, which
// workers of this project do not have.
func (e *Engine) Rescue(ctx context.Context, queue string) (result broker.RescueResult, err error) {
	defer func() { err = queueError("rescuing messages of", queue, err) }()
	if err := e.checkQueueExists(ctx, queue); err != nil {
		return result, err
	}
	groups, err := e.inspector.Groups(queue)
	if err != nil {
		return result, err
	}
	for _, group := range groups {
		tasks, err := e.inspector.ListAggregatingTasks(queue, group.Group, asynq.PageSize(broker.MaxRescued))
		if err != nil {
			return result, err
		}
		for _, task := range tasks {
			if result.Rescued == broker.MaxRescued || ctx.Err() != nil { // calls of the Inspector have no context
				return result, ctx.Err()
			}
			err := e.inspector.ArchiveTask(queue, task.ID)
			if errors.Is(err, asynq.ErrTaskNotFound) {
				continue // someone removed it meanwhile
			}
			if err != nil {
				return result, err
			}
			result.Rescued++
		}
	}
	return result, nil
}
