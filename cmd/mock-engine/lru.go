package main

import "container/list"

// lru is a map that forgets what was used longest ago when it is full. It is not
// safe for concurrent use.
type lru[K comparable, V any] struct {
	most  int // items
	items map[K]*list.Element
	order *list.List // of entries, the one used last in front
}

type entry[K comparable, V any] struct {
	key   K
	value V
}

func newLRU[K comparable, V any](most int) *lru[K, V] {
	return &lru[K, V]{most: most, items: map[K]*list.Element{}, order: list.New()}
}

// get counts as a use.
func (l *lru[K, V]) get(key K) (value V, ok bool) {
	item, ok := l.items[key]
	if !ok {
		return value, false
	}
	l.order.MoveToFront(item)
	return item.Value.(entry[K, V]).value, true
}

func (l *lru[K, V]) put(key K, value V) {
	if item, ok := l.items[key]; ok {
		item.Value = entry[K, V]{key, value}
		l.order.MoveToFront(item)
		return
	}
	if l.order.Len() >= l.most {
		oldest := l.order.Back()
		delete(l.items, oldest.Value.(entry[K, V]).key)
		l.order.Remove(oldest)
	}
	l.items[key] = l.order.PushFront(entry[K, V]{key, value})
}

func (l *lru[K, V]) remove(key K) {
	if item, ok := l.items[key]; ok {
		delete(l.items, key)
		l.order.Remove(item)
	}
}
