// SPDX-License-Identifier: GPL-2.0-only
/*
 * Regions: pinned memory of the process that opened the domain, found by STag. Adding, revoking and
 * releasing run in process context; look-ups anywhere.
 */
#include <linux/file.h>
#include <linux/hugetlb.h>
#include <linux/magic.h>
#include <linux/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "ddp.h"
#include "trace.h"

#define PIN_BATCH 512ul
#define PIN_TRIES 3

static const struct rhashtable_params by_stag_params = {
	.key_len = sizeof(u32),
	.key_offset = offsetof(struct ddp_mr, attr.stag),
	.head_offset = offsetof(struct ddp_mr, node),
	.automatic_shrinking = true,
};

int ddp_regions_init(struct ddp_domain *domain)
{
	mutex_init(&domain->lock);
	INIT_LIST_HEAD(&domain->regions);
	return rhashtable_init(&domain->by_stag, &by_stag_params);
}

/* ---- Look-ups ---------------------------------------------------------- */

static void mr_unuse(struct ddp_mr *mr)
{
	if (refcount_dec_and_test(&mr->users))
		complete(&mr->idle);
}

static bool is_shown(const struct ddp_mr *mr)
{
	return READ_ONCE(mr->state) == DDP_MR_SHOWN &&
	       READ_ONCE(mr->root->state) == DDP_MR_SHOWN;
}

bool ddp_mr_is_found(const struct ddp_mr *mr)
{
	return is_shown(mr) && !READ_ONCE(mr->root->stale);
}

struct ddp_mr *ddp_mr_get(struct ddp_domain *domain, u32 stag)
{
	struct ddp_mr *mr = NULL;

	rcu_read_lock();
	if (!READ_ONCE(domain->closed))
		mr = rhashtable_lookup(&domain->by_stag, &stag, by_stag_params);
	if (mr && !refcount_inc_not_zero(&mr->users))
		mr = NULL;
	rcu_read_unlock();
	if (!mr)
		return NULL;
	/* A view holds the structure of its root. */
	if (mr->root != mr && !refcount_inc_not_zero(&mr->root->users)) {
		mr_unuse(mr);
		return NULL;
	}
	/* Pairs with ddp_region_revoke(): who does not see the mark is seen by RELEASE. */
	smp_mb__after_atomic();
	if (ddp_mr_is_found(mr))
		return mr;
	ddp_mr_put(mr);
	return NULL;
}

void ddp_mr_put(struct ddp_mr *mr)
{
	if (mr->root != mr)
		mr_unuse(mr->root);
	mr_unuse(mr);
}

/* ---- Pinning ----------------------------------------------------------- */

/*
 * fork(), mprotect() and the like leave the memory what it was. Pages that are pinned stay where
 * they are; what the program sees at these addresses may be others from now on.
 */
static bool on_invalidate(struct mmu_interval_notifier *notifier,
			  const struct mmu_notifier_range *range, unsigned long seq)
{
	struct ddp_mr *mr = container_of(notifier, struct ddp_mr, notifier);

	mmu_interval_set_seq(notifier, seq);
	switch (range->event) {
	case MMU_NOTIFY_UNMAP:
	case MMU_NOTIFY_CLEAR:
	case MMU_NOTIFY_RELEASE:
		WRITE_ONCE(mr->stale, true);
		ddp_count(stale, 1);
		trace_ddp_stale(mr->attr.stag, mr->attr.address, mr->attr.length);
		break;
	default:
		break;
	}
	return true;
}

static const struct mmu_interval_notifier_ops notifier_ops = {
	.invalidate = on_invalidate,
};

/* Long-term pins of file pages damage file systems. */
static int check_vma(struct vm_area_struct *vma)
{
	if (!(vma->vm_flags & VM_WRITE))
		return -EFAULT;
	if (vma->vm_flags & (VM_IO | VM_PFNMAP | VM_MIXEDMAP))
		return -EOPNOTSUPP;
	if (vma_is_anonymous(vma) || is_vm_hugetlb_page(vma))
		return 0;
	if (vma->vm_file && file_inode(vma->vm_file)->i_sb->s_magic == TMPFS_MAGIC)
		return 0;
	return -EOPNOTSUPP;
}

static int check_memory(struct mm_struct *mm, unsigned long start, unsigned long end)
{
	struct vm_area_struct *vma;
	int error = 0;

	VMA_ITERATOR(vmi, mm, start);

	mmap_read_lock(mm);
	for_each_vma_range(vmi, vma, end) {
		if (vma->vm_start > start) {
			error = -EFAULT;
			break;
		}
		error = check_vma(vma);
		if (error)
			break;
		start = vma->vm_end;
	}
	mmap_read_unlock(mm);
	if (!error && start < end)
		error = -EFAULT;
	return error;
}

static void unpin(struct ddp_mr *mr, unsigned long n)
{
	if (n)
		unpin_user_pages_dirty_lock(mr->pages, n, true);
}

static int pin_pages(struct ddp_mr *mr, unsigned long start)
{
	unsigned long done = 0;
	int error;

	while (done < mr->page_count) {
		int n = min(mr->page_count - done, PIN_BATCH);

		if (fatal_signal_pending(current)) {
			error = -EINTR;
			goto undo;
		}
		n = pin_user_pages_fast(start + (done << PAGE_SHIFT), n,
					FOLL_WRITE | FOLL_LONGTERM, mr->pages + done);
		if (n <= 0) {
			error = n ? n : -EFAULT;
			goto undo;
		}
		done += n;
		cond_resched();
	}
	return 0;

undo:
	unpin(mr, done);
	return error;
}

/* Pins until nothing changed meanwhile: pinning itself may move pages. */
static int pin_unchanged(struct ddp_mr *mr, unsigned long start, unsigned long end)
{
	int error = 0, tries;

	for (tries = 0; tries < PIN_TRIES; tries++) {
		/* Waits for an invalidation that is under way. */
		mmu_interval_read_begin(&mr->notifier);
		WRITE_ONCE(mr->stale, false);
		smp_mb(); /* before the mappings are read */
		error = check_memory(mr->domain->mm, start, end);
		if (!error)
			error = pin_pages(mr, start);
		if (error)
			return error;
		if (!READ_ONCE(mr->stale))
			return 0;
		unpin(mr, mr->page_count);
	}
	return -EAGAIN;
}

static int mr_pin(struct ddp_mr *mr)
{
	unsigned long start = mr->attr.address & PAGE_MASK;
	unsigned long end = PAGE_ALIGN(mr->attr.address + mr->attr.length);
	struct mm_struct *mm = mr->domain->mm;
	int error;

	mr->page_count = (end - start) >> PAGE_SHIFT;
	mr->pages = kvmalloc_array(mr->page_count, sizeof(*mr->pages), GFP_KERNEL_ACCOUNT);
	if (!mr->pages)
		return -ENOMEM;
	error = account_locked_vm(mm, mr->page_count, true);
	if (error)
		goto free_pages;
	error = mmu_interval_notifier_insert(&mr->notifier, mm, start, end - start,
					     &notifier_ops);
	if (error)
		goto unaccount;
	error = pin_unchanged(mr, start, end);
	if (error)
		goto remove_notifier;
	atomic64_add(mr->page_count, &mr->domain->pinned);
	atomic_add(mr->page_count, &ddp_live_pages);
	return 0;

remove_notifier:
	mmu_interval_notifier_remove(&mr->notifier);
unaccount:
	account_locked_vm(mm, mr->page_count, false);
free_pages:
	kvfree(mr->pages);
	return error;
}

static void mr_unpin(struct ddp_mr *mr)
{
	mmu_interval_notifier_remove(&mr->notifier);
	unpin(mr, mr->page_count);
	account_locked_vm(mr->domain->mm, mr->page_count, false);
	kvfree(mr->pages);
	mr->pages = NULL;
	atomic64_sub(mr->page_count, &mr->domain->pinned);
	atomic_sub(mr->page_count, &ddp_live_pages);
}

/* ---- Making and ending ------------------------------------------------- */

static int check_attr(const struct ddp_region *attr)
{
	const u32 known = DDP_RIGHT_WRITE | DDP_RIGHT_READ_SINK | DDP_RIGHT_ATOMIC;

	if (!attr->stag || !attr->length || attr->flags & ~DDP_REGION_HIDDEN ||
	    attr->rights & ~known)
		return -EINVAL;
	if (attr->rights != DDP_RIGHT_READ_SINK &&
	    (!(attr->rights & DDP_RIGHT_WRITE) || attr->rights & DDP_RIGHT_READ_SINK))
		return -EINVAL;
	if (attr->length > DDP_MAX_REGION_BYTES)
		return -E2BIG;
	if (attr->address > TASK_SIZE_MAX - attr->length ||
	    attr->first_to + attr->length < attr->first_to)
		return -EOVERFLOW;
	return 0;
}

static struct ddp_mr *mr_alloc(struct ddp_domain *domain, const struct ddp_region *attr)
{
	struct ddp_mr *mr = kzalloc(sizeof(*mr), GFP_KERNEL_ACCOUNT);

	if (!mr)
		return NULL;
	mr->domain = domain;
	mr->attr = *attr;
	mr->root = mr;
	mr->state = attr->flags & DDP_REGION_HIDDEN ? DDP_MR_HIDDEN : DDP_MR_SHOWN;
	refcount_set(&mr->refs, 1);
	refcount_set(&mr->users, 1);
	init_completion(&mr->idle);
	atomic_inc(&ddp_live_regions);
	return mr;
}

static void mr_free(struct ddp_mr *mr)
{
	if (refcount_dec_and_test(&mr->refs)) {
		atomic_dec(&ddp_live_regions);
		kfree_rcu(mr, rcu);
	}
}

/* No look-up finds it any more; waits for those that have, and lets go of its pages. */
static void mr_end(struct ddp_mr *mr)
{
	ddp_count(released, 1);
	trace_ddp_release(mr->attr.stag, mr->attr.address, mr->attr.length);
	if (!refcount_dec_and_test(&mr->users)) {
		ddp_count(release_waits, 1);
		atomic64_inc(&mr->domain->waited);
		wait_for_completion(&mr->idle);
	}
	if (mr->root == mr)
		mr_unpin(mr);
	else
		mr_free(mr->root);
	mr_free(mr);
}

static void mr_revoke(struct ddp_mr *mr)
{
	xchg(&mr->state, DDP_MR_REVOKED); /* its barrier pairs with ddp_mr_get() */
}

/* With the domain's lock. */
static struct ddp_mr *mr_find(struct ddp_domain *domain, u32 stag)
{
	return rhashtable_lookup_fast(&domain->by_stag, &stag, by_stag_params);
}

/* A view takes the pages of its parent, if that covers it. With the domain's lock. */
static int mr_share(struct ddp_mr *mr)
{
	const struct ddp_region *attr = &mr->attr;
	struct ddp_mr *parent = mr_find(mr->domain, attr->parent);

	if (!parent || !is_shown(parent))
		return -ENOENT;
	if (parent->root != parent)
		return -EINVAL;
	if (attr->address < parent->attr.address ||
	    attr->address - parent->attr.address > parent->attr.length ||
	    attr->length > parent->attr.length - (attr->address - parent->attr.address))
		return -ERANGE;
	refcount_inc(&parent->refs);
	mr->root = parent;
	return 0;
}

static int mr_insert(struct ddp_mr *mr)
{
	struct ddp_domain *domain = mr->domain;
	int error = -ENOSPC;

	mutex_lock(&domain->lock);
	if (domain->region_count == DDP_MAX_REGIONS)
		goto unlock;
	if (mr->attr.parent) {
		error = mr_share(mr);
		if (error)
			goto unlock;
	}
	error = rhashtable_lookup_insert_fast(&domain->by_stag, &mr->node, by_stag_params);
	if (error)
		goto unlock;
	list_add(&mr->entry, &domain->regions);
	domain->region_count++;
	ddp_count(regions, 1);
unlock:
	mutex_unlock(&domain->lock);
	return error;
}

static void mr_remove(struct ddp_mr *mr)
{
	struct ddp_domain *domain = mr->domain;

	lockdep_assert_held(&domain->lock);
	mr_revoke(mr);
	rhashtable_remove_fast(&domain->by_stag, &mr->node, by_stag_params);
	list_del(&mr->entry);
	domain->region_count--;
}

int ddp_region_add(struct ddp_domain *domain, const struct ddp_region *attr)
{
	struct ddp_mr *mr;
	int error;

	error = check_attr(attr);
	if (error)
		return error;
	mr = mr_alloc(domain, attr);
	if (!mr)
		return -ENOMEM;
	if (!attr->parent) {
		error = mr_pin(mr);
		if (error) {
			mr_free(mr);
			return error;
		}
	}
	error = mr_insert(mr);
	if (!error)
		return 0;
	if (!attr->parent)
		mr_unpin(mr);
	else if (mr->root != mr)
		mr_free(mr->root);
	mr_free(mr);
	return error;
}

int ddp_region_revoke(struct ddp_domain *domain, u32 stag)
{
	struct ddp_mr *mr;

	rcu_read_lock();
	mr = rhashtable_lookup(&domain->by_stag, &stag, by_stag_params);
	if (mr) {
		mr_revoke(mr);
		ddp_count(revoked, 1);
		trace_ddp_revoke(mr->attr.stag, mr->attr.address, mr->attr.length);
	}
	rcu_read_unlock();
	return mr ? 0 : -ENOENT;
}

int ddp_region_show(struct ddp_domain *domain, u32 stag)
{
	struct ddp_mr *mr;
	int was = DDP_MR_REVOKED;

	rcu_read_lock();
	mr = rhashtable_lookup(&domain->by_stag, &stag, by_stag_params);
	if (mr)
		was = cmpxchg(&mr->state, DDP_MR_HIDDEN, DDP_MR_SHOWN);
	rcu_read_unlock();
	return was == DDP_MR_REVOKED ? -ENOENT : 0;
}

int ddp_region_check(struct ddp_domain *domain, u32 stag)
{
	int error = -ENOENT;
	struct ddp_mr *mr;

	/* A view holds the structure of its root for a grace period at least. */
	rcu_read_lock();
	mr = rhashtable_lookup(&domain->by_stag, &stag, by_stag_params);
	if (mr && is_shown(mr))
		error = READ_ONCE(mr->root->stale) ? -ESTALE : 0;
	rcu_read_unlock();
	return error;
}

int ddp_region_release(struct ddp_domain *domain, u32 stag)
{
	struct ddp_mr *mr;

	mutex_lock(&domain->lock);
	mr = mr_find(domain, stag);
	if (mr)
		mr_remove(mr);
	mutex_unlock(&domain->lock);
	if (!mr)
		return -ENOENT;
	mr_end(mr);
	return 0;
}

void ddp_regions_end(struct ddp_domain *domain)
{
	struct ddp_mr *mr, *next;
	LIST_HEAD(ending);

	mutex_lock(&domain->lock);
	if (domain->closed) {
		mutex_unlock(&domain->lock);
		return;
	}
	WRITE_ONCE(domain->closed, true);
	list_for_each_entry_safe(mr, next, &domain->regions, entry) {
		mr_remove(mr);
		list_add(&mr->entry, &ending);
	}
	mutex_unlock(&domain->lock);
	/* Sockets that are still bound may be reading the table. */
	synchronize_rcu();
	list_for_each_entry_safe(mr, next, &ending, entry)
		mr_end(mr);
	rhashtable_destroy(&domain->by_stag);
}

void ddp_regions_count(struct ddp_domain *domain, struct ddp_stats *stats)
{
	struct ddp_mr *mr;

	mutex_lock(&domain->lock);
	stats->regions = domain->region_count;
	list_for_each_entry(mr, &domain->regions, entry)
		stats->stale += mr->root == mr && READ_ONCE(mr->stale);
	mutex_unlock(&domain->lock);
	stats->pinned_bytes = (u64)atomic64_read(&domain->pinned) << PAGE_SHIFT;
	stats->released = atomic64_read(&domain->waited);
}
