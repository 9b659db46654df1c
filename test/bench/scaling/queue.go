package main

// messageQueue contains the indexes of the waiting messages in the order of their arrival.
type messageQueue struct {
	numbers []int
	taken   int
}

func (q *messageQueue) queuedCount() int { return len(q.numbers) - q.taken }

func (q *messageQueue) pushMessage(i int) { q.numbers = append(q.numbers, i) }

func (q *messageQueue) firstMessage() int { return q.numbers[q.taken] }

func (q *messageQueue) popMessage() int {
	i := q.numbers[q.taken]
	q.taken++
	if q.taken == len(q.numbers) {
		q.numbers, q.taken = q.numbers[:0], 0
	}
	return i
}
