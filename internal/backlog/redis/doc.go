// Package redis reads the backlog of a Redis list, or of a consumer group of a Redis stream.
package redis
